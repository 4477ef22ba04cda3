"""torch.npu.Event: a point in a stream."""

from __future__ import annotations

import pytest
import torch


def test_query_is_true_before_the_first_record():
    assert torch.npu.Event().query()


def test_synchronize_returns_at_once_before_the_first_record():
    torch.npu.Event().synchronize()


def test_waiting_for_an_unrecorded_event_is_nothing():
    torch.npu.Event().wait()

    torch.npu.synchronize()


def test_an_event_is_a_torch_event():
    assert isinstance(torch.npu.Event(), torch.Event)


def test_a_synchronized_event_has_happened():
    x = torch.ones(256, 256, device="npu")
    event = torch.npu.Event()
    x = x @ x

    event.record()
    event.synchronize()

    assert event.query()


def test_record_event_makes_one():
    event = torch.npu.Stream().record_event()

    assert isinstance(event, torch.npu.Event)
    event.synchronize()


def test_elapsed_time_waits_and_grows_with_the_work_between():
    begin, end = (torch.npu.Event(enable_timing=True) for _ in range(2))
    x = torch.ones(256, 256, device="npu")

    begin.record()
    for _ in range(10):
        x = torch.softmax(x @ x, 0)
    end.record()

    assert begin.elapsed_time(end) > 0.0


def test_recorded_time_is_in_the_order_of_the_stream():
    events = [torch.npu.Event(enable_timing=True) for _ in range(3)]

    for event in events:
        event.record()

    times = [event.recorded_time() for event in events]
    assert times == sorted(times)
    elapsed = events[0].elapsed_time(events[2])
    assert elapsed == pytest.approx((times[2] - times[0]) / 1e6)


@pytest.mark.parametrize("timing", [True, False])
def test_elapsed_time_needs_a_record(timing: bool):
    one, two = (torch.npu.Event(enable_timing=timing) for _ in range(2))

    with pytest.raises(RuntimeError, match="recorded"):
        one.elapsed_time(two)


def test_times_need_enable_timing():
    event = torch.npu.Event()
    event.record()

    with pytest.raises(RuntimeError, match="enable_timing"):
        event.recorded_time()


def test_an_interprocess_event_cannot_time():
    with pytest.raises(RuntimeError, match="enable_timing"):
        torch.npu.Event(enable_timing=True, interprocess=True)


def test_a_waiter_sees_all_writes_before_the_record():
    producer, consumer = torch.npu.Stream(), torch.npu.Stream()
    event = torch.npu.Event()
    x = torch.zeros(100_000, device="npu")
    torch.npu.synchronize()

    seen = []
    for value in range(1, 20):
        with torch.npu.stream(producer):
            x.fill_(value)
            event.record()
        event.wait(consumer)
        with torch.npu.stream(consumer):
            seen.append(x.min())
        producer.wait_stream(consumer)
    consumer.synchronize()

    assert [value.item() for value in seen] == list(range(1, 20))


def test_recording_again_moves_the_event():
    event = torch.npu.Event(enable_timing=True)
    event.record()
    first = event.recorded_time()

    torch.ones(4, device="npu").add_(1)
    event.record()

    assert event.recorded_time() >= first


def test_an_event_has_a_device_once_it_is_recorded():
    for event in (torch.npu.Event(), torch.npu.Event(interprocess=True)):
        assert event.device is None
        event.record()
        assert event.device == torch.device("npu", 0)


def test_an_event_stays_on_the_device_of_its_first_record(python):
    code = """
import npu_dispatch, torch
npu = torch.npu
streams = [npu.Stream(0), npu.Stream(1)]
for kind in ({}, {"enable_timing": True}, {"blocking": True}, {"interprocess": True}):
    event = npu.Event(**kind)
    event.record(streams[1])
    event.record(streams[1])
    try:
        event.record(streams[0])
    except RuntimeError as error:
        assert "npu:1" in str(error)
    else:
        raise AssertionError(kind)
    assert event.device.index == 1
    event.wait(streams[0])
    streams[0].synchronize()
print("ok")
"""
    assert python(code, NPU_DISPATCH_DEVICES="2").stdout.strip() == "ok"
