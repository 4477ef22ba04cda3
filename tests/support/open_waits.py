"""Knowing that a host thread waits, here or in a program, and acting on it."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from npu_dispatch import _C
from npu_dispatch.observe.segment import StatsReader

PATIENCE_S = 100.0


def until_waiting(reason: str, segment: str | None = None) -> None:
    """Return when a thread of that segment, or of this process, waits for it."""
    deadline = time.monotonic() + PATIENCE_S
    with StatsReader(Path(segment or _C.segment_path())) as reader:
        while not any(wait.reason == reason for wait in reader.open_waits()):
            assert time.monotonic() < deadline, f"nobody waits for {reason}"


def until_awaited(segment: str) -> None:
    """Return when somebody awaits work of that process."""
    deadline = time.monotonic() + PATIENCE_S
    with StatsReader(Path(segment)) as reader:
        while not reader.process().async_waiters:
            assert time.monotonic() < deadline, "nobody awaits"


def waiting() -> int:
    """Return how many waits of this process are under way, listed or not."""
    with StatsReader(Path(_C.segment_path())) as reader:
        return sum(sum(d.waiting.values()) for d in reader.devices())


@contextlib.contextmanager
def when_waiting(reason: str, act: Callable[[], None]) -> Iterator[None]:
    """Within it, call a function once a thread waits for that reason."""

    def look() -> None:
        until_waiting(reason)
        act()

    thread = threading.Thread(target=look)
    thread.start()
    yield
    thread.join()


def released_when_waiting(
    reason: str, gate: threading.Event
) -> contextlib.AbstractContextManager[None]:
    return when_waiting(reason, gate.set)
