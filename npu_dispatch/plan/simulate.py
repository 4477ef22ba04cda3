"""What a program did, as it was recorded, and what it would do on another device."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_dispatch.observe.segment.layout import OPEN_WAIT_REASONS
from npu_dispatch.observe.trace.tracks import Host, Process, Slice, StreamTrack
from npu_dispatch.plan.spec import Spec

__all__ = ["ENTRY", "Act", "Recording", "Run", "Simulation", "Task", "Wait"]

Entries = npt.NDArray[np.void]

# The mirror of Entry in csrc/plan/recording.h.
ENTRY = np.dtype(
    [(name, "u4") for name in ("act", "stream", "other", "what", "site", "thread")]
    + [("amount", "u8"), ("host_ns", "u8")]
)
# Of as many alike steps, each place was quiet in one.
_FEW = 5
# Reasons of waits in which the host reads values.
_READS = ("item", "copy", "operator")
# The mirrors of csrc/plan/simulation.h.
_TASK = np.dtype(
    [(name, "u8") for name in ("submitted", "started", "ended", "number")]
    + [(name, "u4") for name in ("stream", "what", "site", "depth")]
    + [("after_number", "u8"), ("after_stream", "u4"), ("pad", "u4")]
)
_WAIT = np.dtype([("begun", "u8"), ("ended", "u8"), ("reason", "u4"), ("site", "u4")])
_STEP = np.dtype([("host", "u8"), ("device", "u8")])
_NO_WORK = 2**32 - 1
# The steps are repeated until queues are as full as they become.
_LEAST_REPEATS, _MOST_REPEATS, _ENTRIES = 2, 20, 30_000


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

    def last_read(self, line_of: Callable[[int], str]) -> str:
        """Return the last line that read values from the device; "" for none."""
        reads = [OPEN_WAIT_REASONS.index(reason) for reason in _READS]
        is_read = (self.entries["act"] == Act.HOST_WAIT) & np.isin(
            self.entries["what"], reads
        )
        sites = self.entries["site"][is_read]
        return line_of(int(sites[-1])) if len(sites) else ""

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


@dataclass(frozen=True, slots=True)
class Task:
    """One task; times in ns. `after`: the stream and number that it waits for."""

    name: str
    stream: tuple[int, int]
    number: int  # how many tasks of its stream are done with it
    submitted: float
    started: float
    ended: float
    depth: int
    runs: bool  # takes time of the device
    after: tuple[tuple[int, int], int] | None = None
    where: str = "?"  # the line that launched it
    collective: bool = False
    # Where its time is from: "measured" on a device, "interpolated" between such times,
    # or "modelled" by a spec.
    origin: str = "modelled"


@dataclass(frozen=True, slots=True)
class Wait:
    """The host waited for the device."""

    reason: str
    where: str
    begun: float
    ended: float


@dataclass(frozen=True, slots=True)
class Run:
    """Tasks in the order of their submissions, and waits as they began."""

    tasks: Sequence[Task]
    waits: Sequence[Wait]
    boundaries: Sequence[float]  # ends of steps, on the host


@dataclass(frozen=True, slots=True)
class Simulation:
    """Of a device, beside a host that is `host` times as fast as the recorded one."""

    recording: Recording
    spec: Spec
    host: float = 1.0

    def _simulated(
        self,
        stated: Sequence[float],
        host: float = 1.0,
        device: float = 1.0,
        work: float = 1.0,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        recording, entries, repeats = self.recording, self.recording.entries, 1
        if recording.step_count:
            repeats = -(-_ENTRIES // max(len(entries), 1))
            repeats = min(max(repeats, _LEAST_REPEATS), _MOST_REPEATS)
        else:
            bound = np.zeros(1, ENTRY)
            bound["act"] = Act.STEP
            entries = np.concatenate([bound, entries, bound])
        tasks, waits, steps = recording.program.simulate(
            entries.tobytes(),
            self.spec.driver_text(slower=1 / device),
            host=self.host * host,
            work=work,
            # The network is as fast beside a faster device.
            stated=[
                ns if of["type"] == "collective" else ns / device
                for ns, of in zip(stated, recording.program.works, strict=False)
            ],
            repeats=repeats,
        )
        return (
            np.frombuffer(tasks, _TASK),
            np.frombuffer(waits, _WAIT),
            np.frombuffer(steps, _STEP)[-(recording.step_count or 1) - 1 :],
        )

    def step_ns(self, stated: Sequence[float] = (), **factors: float) -> float:
        """Return the time of a step, between the ends of two steps' last tasks.

        `stated` are the ns of works, where they are known. The factors say how many
        times as fast `host` and `device` are, and how many times the `work` a task has.
        """
        *_, steps = self._simulated(stated, **factors)
        ends = steps["device"]
        return float(ends[-1] - ends[0]) / (len(ends) - 1)

    def run(
        self,
        line_of: Callable[[int], str],
        stated: Sequence[float] = (),
        exact: Collection[int] = (),
    ) -> Run:
        """Return what the steps do once queues are as full as they become.

        `exact` are the works whose stated time was measured, and not interpolated.
        """
        tasks, waits, steps = self._simulated(stated)
        first, last = steps["host"][0], steps["host"][-1]
        # Of the time before, what may still be under way.
        tasks = tasks[(tasks["ended"] >= first) & (tasks["submitted"] <= last)]
        waits = waits[(waits["ended"] >= first) & (waits["begun"] <= last)]
        streams = self.recording.program.streams
        works = self.recording.program.works
        sites = {*tasks["site"].tolist(), *waits["site"].tolist()}
        lines = {site: line_of(site) or "?" for site in sites}

        def task_of(row: tuple[int, ...]) -> Task:
            submitted, started, ended, number, *which = row
            stream, what, site, depth, after_number, after_stream, _ = which
            work = works[what] if what != _NO_WORK else None
            collective = bool(work and work["type"] == "collective")
            origin = "modelled"
            if what < len(stated) and stated[what] >= 0 and not collective:
                origin = "measured" if what in exact else "interpolated"
            return Task(
                name=(work["name"] or "record") if work else "wait",
                stream=streams[stream],
                number=number,
                submitted=float(submitted),
                started=float(started),
                ended=float(ended),
                depth=depth,
                runs=bool(work and work["type"] != "none"),
                after=(streams[after_stream], after_number) if after_number else None,
                where=lines[site],
                collective=collective,
                origin=origin,
            )

        return Run(
            [task_of(row) for row in tasks.tolist()],
            [
                Wait(OPEN_WAIT_REASONS[reason], lines[site], float(begun), float(ended))
                for begun, ended, reason, site in waits.tolist()
            ],
            [float(at) for at in steps["host"]],
        )


def timeline_of(run: Run, name: str) -> Process:
    """Return the run as a process with tracks, for a file of its timeline."""
    slices: dict[tuple[int, int], list[Slice]] = defaultdict(list)
    for task in run.tasks:
        slices[task.stream].append(
            Slice(
                name=task.name,
                position=task.number - 1,
                submitted=int(task.submitted),
                started=int(task.started),
                ended=int(task.ended),
                depth=task.depth,
                waited_for=(*task.after[0], task.after[1]) if task.after else None,
                line=task.where,
            )
        )
    streams = [StreamTrack(*stream, tasks) for stream, tasks in sorted(slices.items())]
    return Process(os.getpid(), name, streams, host=Host.this())
