"""Switches the recording of range markers on and off, as torch.cuda.profiler.

What nvtx and mstx mark between start() and stop() is kept, up to the latest 65536
marks, and export() writes these for a trace viewer.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from npu_dispatch.npu.debugging.ranges import recorder
from npu_dispatch.npu.vendor import settings

__all__ = ["export", "init", "profile", "start", "stop"]


def init(
    output_file: str = "", flags: object = None, output_mode: str = "key_value"
) -> None:
    """Do nothing, as torch.cuda's own has had no effect for years."""


def start() -> None:
    """Record from now on, and keep what was recorded before."""
    recorder.switch(on=True)


def stop() -> None:
    """Stop recording."""
    recorder.switch(on=False)


@contextlib.contextmanager
def profile() -> Iterator[None]:
    """Record inside the block."""
    start()
    try:
        yield
    finally:
        stop()


def export(path: str | Path) -> None:
    """Write what was recorded as a Chrome trace, with times in microseconds.

    Each mark is on the row of the thread that made it. A mark that named a stream is
    also on that stream's row, at the time when the stream reached it. The file also
    has npu_options, which set_option() has set.
    """
    events = [event for mark in recorder.marks() for event in mark.events()]
    trace = {"traceEvents": events, "npu_options": settings._Kept.options}
    Path(path).write_text(json.dumps(trace))
