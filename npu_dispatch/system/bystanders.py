"""What other processes take of this machine's CPUs while something is measured."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["Bystanders", "share_of_others"]

# Of /proc/stat's first line: user, nice, system, idle, iowait, irq, softirq, steal.
_IDLE = slice(3, 5)
_ALL = slice(0, 8)


def share_of_others(before: str, after: str, own_ticks: float) -> float:
    """Return the part of all CPU time between two texts of /proc/stat, 0 to 1.

    What a hypervisor gave to other machines counts as theirs.
    """

    def ticks(text: str, which: slice) -> int:
        return sum(int(field) for field in text.split("\n", 1)[0].split()[1:][which])

    whole = ticks(after, _ALL) - ticks(before, _ALL)
    idle = ticks(after, _IDLE) - ticks(before, _IDLE)
    return min(max((whole - idle - own_ticks) / max(whole, 1), 0.0), 1.0)


class Bystanders:
    """Counts from its construction on."""

    def __init__(self) -> None:
        self._before = self._now()

    def share(self) -> float:
        """Return the part of all CPUs that other processes took; 0 where unknown."""
        (stat, own), (before, own_before) = self._now(), self._before
        if not stat or not before:
            return 0.0
        return share_of_others(before, stat, own - own_before)

    @staticmethod
    def _now() -> tuple[str, float]:
        times = os.times()
        own = (times.user + times.system) * os.sysconf("SC_CLK_TCK")
        try:
            return Path("/proc/stat").read_text(), own
        except OSError:
            return "", own
