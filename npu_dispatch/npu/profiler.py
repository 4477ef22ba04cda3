"""Switches the recording of range markers on and off, as torch.cuda.profiler.

What nvtx and mstx mark between start() and stop() is kept, the latest 65536
marks of it, and export() writes it for a trace viewer.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from npu_dispatch.npu.ranges.marks import recorder
from npu_dispatch.npu.settings import options

__all__ = ["export", "init", "profile", "start", "stop"]


def init(
    output_file: str = "", flags: object = None, output_mode: str = "key_value"
) -> None:
    """Do nothing: torch.cuda's own has been without effect for years."""


def start() -> None:
    """Record from now on. What was recorded before stays."""
    recorder.switch(on=True)


def stop() -> None:
    """Record no more."""
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
    """Write what was recorded as a Chrome trace, times in microseconds.

    Each mark is on the row of the thread that made it, and where it named a
    stream also on that stream's row, at the time the stream reached it. What
    set_option() has set is beside them, as npu_options.
    """
    events = [event for mark in recorder.marks() for event in mark.events()]
    trace = {"traceEvents": events, "npu_options": options._get_options()}
    Path(path).write_text(json.dumps(trace))
