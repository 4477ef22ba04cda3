"""What processes said at several moments, to be compared."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from npu_dispatch.observe.segment import OpCost, SiteWaits
from npu_dispatch.observe.segment.collectives import CollectiveTotal
from npu_dispatch.observe.segment.listing import ProcessView

__all__ = ["History", "Reading"]


class Reading(NamedTuple):
    """What a process said at one moment, as far as somebody has asked."""

    view: ProcessView
    lines: Sequence[SiteWaits] = ()  # what host waits cost by Python line
    ops: Sequence[OpCost] = ()  # the costliest first
    totals: Sequence[CollectiveTotal] = ()


class History:
    """The readings of the last seconds, and of each process one that is older."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._of: dict[str, deque[Reading]] = {}

    def note(self, readings: Iterable[Reading]) -> None:
        """Add a reading of each process that lives; forget the others."""
        before, self._of = self._of, {}
        for now in readings:
            past = before.get(now.view.id)
            # A program that replaces itself counts from zero.
            if past is None or past[-1].view.info != now.view.info:
                past = deque()
            past.append(now)
            while len(past) > 1 and now.view.tick - past[1].view.tick > self._seconds:
                past.popleft()
            self._of[now.view.id] = past

    def before(self, view: ProcessView) -> Reading | None:
        """Return a process's newest reading that is old enough, or else its oldest.

        None where the last note() had its first reading.
        """
        past = self._of.get(view.id)
        return past[0] if past and len(past) > 1 else None
