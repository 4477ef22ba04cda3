"""How much of the machine other programs had while something was measured."""

from __future__ import annotations

import os
import time
from pathlib import Path


def _busy_s() -> float:
    """Return the seconds that the machine's processors have worked for processes."""
    user, nice, system = Path("/proc/stat").read_text().split()[1:4]
    ticks: int = os.sysconf("SC_CLK_TCK")
    return (int(user) + int(nice) + int(system)) / ticks


def _own_s() -> float:
    """Return those of this process, and of its children that have ended."""
    return sum(os.times()[:4])


class Load:
    """From now on; children have to end before it is asked."""

    def __init__(self) -> None:
        self._began, self._busy, self._own = time.monotonic(), _busy_s(), _own_s()

    def seconds(self) -> float:
        return time.monotonic() - self._began

    def of_others(self) -> float:
        """Return the part of all cores that processes had which are not children."""
        others = (_busy_s() - self._busy) - (_own_s() - self._own)
        cores = os.cpu_count() or 1
        return max(0.0, others / (self.seconds() * cores))
