"""What other processes take of this machine's CPUs while something is measured."""

from __future__ import annotations

import os
from typing import Any

import psutil

__all__ = ["Bystanders", "share_of_others"]

_PARTS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


def share_of_others(before: Any, after: Any, own_seconds: float) -> float:
    """Return the part of all CPU time between two psutil.cpu_times(), 0 to 1.

    What a hypervisor gave to other machines counts as theirs.
    """
    spent = {part: getattr(after, part) - getattr(before, part) for part in _PARTS}
    whole = sum(spent.values())
    theirs = whole - spent["idle"] - spent["iowait"] - own_seconds
    return min(max(theirs / whole, 0.0), 1.0) if whole else 0.0


class Bystanders:
    """Counts from its construction on."""

    def __init__(self) -> None:
        self._before = self._now()

    def share(self) -> float:
        """Return the part of all CPUs that other processes took; 0 where unknown."""
        (times, own), (before, own_before) = self._now(), self._before
        if not times or not before:
            return 0.0
        return share_of_others(before, times, own - own_before)

    @staticmethod
    def _now() -> tuple[Any, float]:
        mine = os.times()
        own = mine.user + mine.system
        try:
            return psutil.cpu_times(), own
        except OSError:
            return None, own
