"""What a program did, as it was recorded: launches, waits, and the host's time."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["ENTRY", "Act", "Recording", "Spread"]

Entries = npt.NDArray[np.void]

# The mirror of Entry in csrc/plan/program.h.
ENTRY = np.dtype(
    [
        ("act", "u4"),
        ("stream", "u4"),
        ("other", "u4"),
        ("what", "u4"),
        ("site", "u4"),
        ("thread", "u4"),
        ("amount", "u8"),
        ("host_ns", "u8"),
    ]
)
# Of as many alike steps, some had a quiet moment at each place.
_FEW = 5
_QUIET = 0.1


class Act(IntEnum):
    LAUNCH = 0
    STREAM_WAIT = 1
    HOST_WAIT = 2
    PASS = 3
    STEP = 4


@dataclass(frozen=True, slots=True)
class Spread:
    """The host's time in the quickest and in a usual step, as parts of a quiet one."""

    quick: float = 1.0
    usual: float = 1.0


@dataclass(frozen=True)
class Recording:
    program: Any  # _C.PlanProgram
    entries: Entries
    step_count: int  # of the entries; 0: they are the whole run, and no steps

    @classmethod
    def of(cls, program: Any, warmup: int) -> Recording:
        """Return what follows on the first `warmup` steps, where there is more.

        What comes after the last step is left out. Where there are fewer than two
        steps it is everything.
        """
        entries = np.frombuffer(program.entries, ENTRY)
        ends = np.flatnonzero(entries["act"] == Act.STEP)
        if len(ends) < 2:
            return cls(program, entries, 0)
        first = warmup if len(ends) > warmup + 1 else 0
        part = entries[ends[first] + 1 : ends[-1] + 1]
        return cls(program, part, len(ends) - first - 1)

    def steps(self) -> list[Entries]:
        ends = np.flatnonzero(self.entries["act"] == Act.STEP) + 1
        return np.split(self.entries, ends[:-1])

    def quiet(self) -> tuple[Recording, Spread]:
        """Return it with the host times of a machine that does nothing else.

        Steps are alike that launch the same and wait for the same. Each of their
        entries gets the time below which a tenth of them are at that place: what
        else runs on this machine only adds to some of them, and the part of
        those depends on how busy it is.
        """
        if not self.step_count:
            return self, Spread()
        steps = self.steps()
        alike: dict[bytes, list[int]] = defaultdict(list)
        for i, step in enumerate(steps):
            key = step.copy()
            key["host_ns"] = key["site"] = 0
            alike[key.tobytes()].append(i)
        quickest, usual = [], []
        for places in alike.values():
            if len(places) < _FEW:
                continue
            times = np.stack([steps[i]["host_ns"] for i in places])
            quiet = np.quantile(times, _QUIET, axis=0)
            whole = max(quiet.sum(), 1)
            quickest += [times.min(axis=0).sum() / whole] * len(places)
            usual += list(times.sum(axis=1) / whole)
            for i in places:
                steps[i] = steps[i].copy()
                steps[i]["host_ns"] = quiet
        spread = Spread()
        if usual:
            spread = Spread(float(np.mean(quickest)), float(np.median(usual)))
        entries = np.concatenate(steps)
        return Recording(self.program, entries, self.step_count), spread
