"""Lets go of what a host thread waits for, once it waits."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from npu_dispatch import _C
from npu_dispatch.stats import StatsReader


@contextlib.contextmanager
def released_when_waiting(reason: str, gate: threading.Event) -> Iterator[None]:
    """Within it, set the gate when a thread waits for that reason."""
    reader = StatsReader(Path(_C.segment_path()))

    def release() -> None:
        while not any(wait.reason == reason for wait in reader.open_waits()):
            pass
        gate.set()

    thread = threading.Thread(target=release)
    thread.start()
    yield
    thread.join()
