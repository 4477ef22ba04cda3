"""What an event says of work that its stream has dropped: an error, never `True`."""

from __future__ import annotations

import pytest
import torch
from held_stream import Held
from open_waits import released_when_waiting

EVENTS = {
    "Event": lambda: torch.npu.Event(),
    "timing": lambda: torch.npu.Event(enable_timing=True),
    "blocking": lambda: torch.npu.Event(blocking=True),
    "interprocess": lambda: torch.npu.Event(interprocess=True),
    "torch.Event": lambda: torch.Event("npu"),
}


@pytest.fixture(autouse=True)
def no_error_left():
    yield
    torch.npu.reset_device()


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
def test_a_poll_of_a_dropped_copy_raises_until_the_event_is_recorded_again(kind: str):
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


def test_a_dropped_event_has_no_time_after_the_reset():
    begin, end = (torch.npu.Event(enable_timing=True) for _ in range(2))
    begin.record()
    dropped_copy(end)
    torch.npu.reset_device()

    for time in (lambda: begin.elapsed_time(end), end.recorded_time):
        with pytest.raises(RuntimeError, match="has not come to this event"):
            time()
    assert begin.recorded_time() > 0


def test_pinned_memory_is_given_out_while_a_stream_has_failed():
    event = torch.npu.Event()
    buffer = dropped_copy(event)
    with pytest.raises(IndexError):
        event.synchronize()
    del buffer

    assert torch.empty(1000, pin_memory=True).is_pinned()


def test_who_waits_for_a_failed_stream_fails_though_that_one_is_reset_meanwhile():
    failing, waiting, y = torch.npu.Stream(), torch.npu.Stream(), torch.zeros(4).npu()
    torch.npu.synchronize()
    fail(failing)
    with Held(waiting) as held, torch.npu.stream(waiting):
        waiting.wait_stream(failing)
        y.add_(1)
        with released_when_waiting("stream_sync", held.gate):
            torch.npu.reset_device()

    assert y.tolist() == [0] * 4
