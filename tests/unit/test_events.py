"""torch.npu.Event: a point in a stream."""

from __future__ import annotations

import pytest
import torch
from held_stream import Held


def test_nothing_waits_for_an_event_before_its_first_record():
    event, stream = torch.npu.Event(), torch.npu.Stream()

    event.synchronize()
    event.wait(stream)

    assert event.query() and stream.query()


def test_record_event_makes_one():
    stream = torch.npu.Stream()

    with Held(stream):
        event = stream.record_event()
        assert not event.query()
    event.synchronize()

    assert event.query()
    assert isinstance(event, torch.npu.Event) and isinstance(event, torch.Event)


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


def test_recording_again_moves_the_event():
    event, stream = torch.npu.Event(), torch.npu.Stream()
    event.record(stream)
    event.synchronize()

    with Held(stream):
        event.record(stream)
        assert not event.query()


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


def test_elapsed_time_says_what_it_takes():
    event = torch.npu.Event(enable_timing=True)
    event.record()
    for wrong in (None, 3):
        with pytest.raises(TypeError, match=f"but got {type(wrong).__name__}"):
            event.elapsed_time(wrong)
