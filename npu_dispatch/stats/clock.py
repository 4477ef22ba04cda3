"""Moments of the monotonic clock as dates.

Readings carry the machine's monotonic time, which no administrator and no time
server can step. A date is made of one only where people or Prometheus see it.
"""

from __future__ import annotations

import time

__all__ = ["unix_ns", "unix_offset_ns"]


def unix_offset_ns() -> int:
    """Return what to add to a moment of CLOCK_MONOTONIC for one since 1970."""
    return time.time_ns() - time.monotonic_ns()


def unix_ns(monotonic_ns: int) -> int:
    """Return a moment of CLOCK_MONOTONIC in nanoseconds since 1970, as of today.

    Before the last suspend of the machine it is too late by how long that took.
    """
    return unix_offset_ns() + monotonic_ns
