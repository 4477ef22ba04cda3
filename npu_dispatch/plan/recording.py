"""What a program did, as it was recorded: launches, waits, and the host's time."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["ENTRY", "Act", "Recording"]

Entries = npt.NDArray[np.void]

# The mirror of Entry in csrc/plan/recording.h.
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
# Of as many alike steps, each place was quiet in one.
_FEW = 5


class Act(IntEnum):
    LAUNCH = 0
    STREAM_WAIT = 1
    HOST_WAIT = 2
    PASS = 3
    STEP = 4


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

    def quiet(self) -> tuple[Recording, float]:
        """Return it with the host times of a machine that does nothing else, and by
        which factor a usual step of the host took longer.

        Steps are alike that launch the same and wait for the same. Each of their
        entries gets the least of its times: what else runs on this machine only adds
        to them, and adds to more of them the busier it is.
        """
        if not self.step_count:
            return self, 1.0
        steps = self.steps()
        alike: dict[bytes, list[int]] = defaultdict(list)
        for i, step in enumerate(steps):
            key = step.copy()
            key["host_ns"] = key["site"] = 0
            alike[key.tobytes()].append(i)
        usual = []
        for places in alike.values():
            if len(places) < _FEW:
                continue
            times = np.stack([steps[i]["host_ns"] for i in places])
            quiet = times.min(axis=0)
            usual += list(times.sum(axis=1) / max(quiet.sum(), 1))
            for i in places:
                steps[i] = steps[i].copy()
                steps[i]["host_ns"] = quiet
        entries = np.concatenate(steps)
        factor = float(np.median(usual)) if usual else 1.0
        return Recording(self.program, entries, self.step_count), factor
