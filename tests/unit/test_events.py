"""torch.npu.Event: a point in a stream, and an error where its work was dropped."""

import pytest
import torch
from held_stream import Held
from open_waits import released_when_waiting


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
import pytest, torch
npu = torch.npu
streams = [npu.Stream(0), npu.Stream(1)]
for kind in ({}, {"enable_timing": True}, {"blocking": True}, {"interprocess": True}):
    event = npu.Event(**kind)
    event.record(streams[1])
    event.record(streams[1])
    with pytest.raises(RuntimeError, match="npu:1"):
        event.record(streams[0])
    assert event.device.index == 1
    event.wait(streams[0])
    streams[0].synchronize()
"""
    python(code, NPU_DISPATCH_DEVICES="2")


def test_elapsed_time_says_what_it_takes():
    event = torch.npu.Event(enable_timing=True)
    event.record()
    for wrong in (None, 3):
        with pytest.raises(TypeError, match=f"but got {type(wrong).__name__}"):
            event.elapsed_time(wrong)


EVENTS = {
    "Event": lambda: torch.npu.Event(),
    "timing": lambda: torch.npu.Event(enable_timing=True),
    "blocking": lambda: torch.npu.Event(blocking=True),
    "interprocess": lambda: torch.npu.Event(interprocess=True),
    "torch.Event": lambda: torch.Event("npu"),
}


@pytest.mark.parametrize("generic", [False, True])
@pytest.mark.parametrize("kind", EVENTS)
def test_each_kind_of_stream_waits_for_each_kind_of_event(kind: str, generic: bool):
    event, producer, x = EVENTS[kind](), torch.npu.Stream(), torch.zeros(4).npu()
    stream = torch.Stream("npu") if generic else torch.npu.Stream()
    torch.npu.synchronize()
    with Held(producer):
        with torch.npu.stream(producer):
            x.fill_(1)
        event.record(producer)
        stream.wait_event(event)
        with stream:
            y = x.clone()
        assert not stream.query()
    stream.synchronize()
    assert y.tolist() == [1, 1, 1, 1]


def fail(stream: torch.npu.Stream) -> None:
    with torch.npu.stream(stream):
        torch.ones(4).npu()[torch.tensor([9999]).npu()]


def dropped_copy(event: torch.Event) -> torch.Tensor:
    """Return a pinned buffer whose copy is dropped, with the event behind it."""
    stream, x = torch.npu.Stream(), torch.full((1000,), 5.0).npu()
    buffer = torch.full((1000,), -1.0).pin_memory()
    torch.npu.synchronize()
    with Held(stream), torch.npu.stream(stream):  # a failed stream takes no record
        fail(stream)
        buffer.copy_(x, non_blocking=True)
        event.record(stream)
    return buffer


@pytest.mark.parametrize("kind", EVENTS)
def test_a_poll_of_a_dropped_copy_raises_until_recorded_again(kind: str, reset):
    event = EVENTS[kind]()
    buffer = dropped_copy(event)

    with pytest.raises(IndexError, match="out of bounds"):
        while not event.query():
            pass
    with pytest.raises(IndexError, match="out of bounds"):
        event.synchronize()
    assert buffer.eq(-1).all()

    torch.npu.reset_device()
    event.record(torch.npu.current_stream())
    event.wait(torch.npu.current_stream())
    event.synchronize()
    assert event.query()


def test_a_dropped_event_has_no_time_after_the_reset(reset):
    begin, end = (torch.npu.Event(enable_timing=True) for _ in range(2))
    begin.record()
    dropped_copy(end)
    torch.npu.reset_device()

    for time in (lambda: begin.elapsed_time(end), end.recorded_time):
        with pytest.raises(RuntimeError, match="has not come to this event"):
            time()
    assert begin.recorded_time() > 0


def test_pinned_memory_is_given_out_while_a_stream_has_failed(reset):
    event = torch.npu.Event()
    buffer = dropped_copy(event)
    with pytest.raises(IndexError):
        event.synchronize()
    del buffer

    assert torch.empty(1000, pin_memory=True).is_pinned()


def test_who_waits_for_a_failed_stream_fails_though_that_one_is_reset_meanwhile(reset):
    failing, waiting, y = torch.npu.Stream(), torch.npu.Stream(), torch.zeros(4).npu()
    torch.npu.synchronize()
    with Held(waiting) as held, torch.npu.stream(waiting):
        with Held(failing):  # a stream that has failed is refused as one to wait for
            fail(failing)
            waiting.wait_stream(failing)
        y.add_(1)
        with released_when_waiting("stream_sync", held.gate):
            torch.npu.reset_device()

    assert y.tolist() == [0] * 4
