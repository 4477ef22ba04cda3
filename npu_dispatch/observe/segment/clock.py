"""Moments of the monotonic clock as dates.

Readings carry the machine's monotonic time, which no administrator and no time
server can step. A date is made of one only where people or Prometheus see it.
"""

from __future__ import annotations

import time

# Both clocks are slewed alike, so the offset changes only when the date is set or
# the machine was suspended. Anything smaller is the error of reading one after the
# other, and must not move: a moment that has not changed has one date.
_LEAST_STEP_NS = 1_000_000
_TRIES = 3
_known_ns: int | None = None


def _read_offset_ns() -> tuple[int, int]:
    """Return by how much a reading may be wrong, and the offset that it gives."""
    before, date, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
    return after - before, date - (before + after) // 2


def unix_offset_ns() -> int:
    """Return what to add to a moment of CLOCK_MONOTONIC for one since 1970.

    It is the same at each call until the date is set or the machine was suspended.
    """
    global _known_ns
    # The thread may be stopped in the middle of a reading: the shortest one counts.
    _, now = min(_read_offset_ns() for _ in range(_TRIES))
    if _known_ns is None or abs(now - _known_ns) >= _LEAST_STEP_NS:
        _known_ns = now
    return _known_ns


def unix_ns(monotonic_ns: int) -> int:
    """Return a moment of CLOCK_MONOTONIC in nanoseconds since 1970, as of today.

    Before the last suspend of the machine it is too late by how long that took.
    """
    return unix_offset_ns() + monotonic_ns
