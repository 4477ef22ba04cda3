"""What killed processes leave in shared memory, and how long it is kept.

A process that ends by itself removes its segment and its trace. One that was
killed cannot; whoever finds its file first, a new process or a reader, gives it
the name NAME.dead, so that nobody takes it for a living process's and a new
process of that number leaves it alone. The newest few of these files are kept, for
an hour from then on. csrc/stats/owner.h has the same rule for processes that start.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

__all__ = ["SUFFIX", "aside", "lay_aside", "remains", "sweep"]

SUFFIX = ".dead"
KEPT_S = 3600.0
KEPT_SEGMENTS = 16


def aside(path: Path) -> Path:
    """Return the name of a dead process's file."""
    return path.with_name(path.name + SUFFIX)


def lay_aside(path: Path) -> None:
    """Keep a dead process's file for a postmortem, under another name.

    Another user's files are left alone.
    """
    with contextlib.suppress(OSError):
        if path.parent.stat().st_uid != os.geteuid():
            return
    with contextlib.suppress(OSError):  # the file system may be read-only
        os.utime(path)
        path.rename(aside(path))
    sweep(path.parent)


def remains(directory: Path) -> list[Path]:
    """Return what was laid aside, the newest first."""
    found = []
    with contextlib.suppress(OSError):
        for path in directory.iterdir():
            if path.name.endswith(SUFFIX):
                with contextlib.suppress(OSError):
                    found.append((path.lstat().st_mtime, path))
    return [path for _, path in sorted(found, reverse=True)]


def sweep(directory: Path) -> None:
    """Remove what has been kept for an hour, and all but the newest few."""
    oldest = time.time() - KEPT_S
    for number, path in enumerate(remains(directory)):
        with contextlib.suppress(OSError):
            if number >= KEPT_SEGMENTS or path.lstat().st_mtime < oldest:
                path.unlink()
