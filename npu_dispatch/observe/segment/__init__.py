"""Read the counters that a process keeps in its statistics segment.

Only the engine writes there, and a reader needs no help from it, so this also works
on a process that hangs. csrc/stats/layout.h defines the layout, and layout.py
mirrors it. This imports neither torch nor the extension.
"""

from __future__ import annotations

import os
from pathlib import Path

from npu_dispatch.observe.segment.folders import SEGMENTS, own_file
from npu_dispatch.observe.segment.reader import StatsError, StatsReader

__all__ = ["StatsError", "StatsReader", "segment_file"]


def segment_file(pid: int | None = None) -> Path:
    """Return where a process of this user, by default this one, has its segment."""
    return own_file(SEGMENTS, os.getpid() if pid is None else pid)
