"""What a recorded run says: where a step's time goes, and what would change it."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

from npu_dispatch.plan.run import Run, Task, Wait

__all__ = ["Blame", "Graph", "Operator", "RankTime", "Report", "WhatIf", "analyse"]

# The reason in a Blame of a line that launches and does not wait.
_LAUNCHES = "launches"


@dataclass(frozen=True, slots=True)
class Operator:
    name: str
    calls: float  # a step
    device_us: float  # a step
    host_us: float  # a step: from its launch to the next one
    measured: float = 0.0  # of its time on the device: the part that was measured


@dataclass(frozen=True, slots=True)
class Blame:
    """What a line costs in a step, by its launches or by its waits for the device."""

    where: str
    reason: str  # what it waited for, or "launches"
    times: float
    host_us: float  # while the host was blocked, or until its next launch
    idle_us: float  # while the device had nothing to do because of it


@dataclass(frozen=True, slots=True)
class WhatIf:
    what: str
    step_us: float
    speedup: float  # of the work done in a second


@dataclass(frozen=True, slots=True)
class Graph:
    """A step as a captured graph: what a replay took, or why there is none."""

    step_us: float | None
    why_not: str
    where: str


@dataclass(frozen=True, slots=True)
class RankTime:
    """A step on so many ranks."""

    ranks: int
    step_us: float
    exposed_us: float  # of it, in which a rank only waits for others
    bound_by: str  # "device", "launches", "syncs", or the link: "across hosts"


@dataclass(frozen=True, slots=True)
class Report:
    device: str
    step_is: str  # what a step is: an optimizer's step(), a model's call, all
    steps: int
    step_us: float
    # Parts of a step, which add up to 1 with network_bound: the device works, it has
    # nothing to do because the host launches too slowly, or because the host waited
    # for it.
    device_bound: float
    launch_bound: float
    sync_bound: float
    launches: float  # a step
    depth_median: float
    depth_max: int
    peak_allocated: int  # bytes
    peak_reserved: int
    operators: list[Operator]
    blames: list[Blame]
    what_if: list[WhatIf]
    graph: Graph | None  # None: no step was left to capture
    notes: list[str]  # what is to be known of the figures, in sentences
    script: str = ""  # as it was named
    # Between these lie the steps that were seen.
    least_us: float = 0.0
    most_us: float = 0.0
    memory: int = 0  # bytes that the device has
    too_much: int = 0  # bytes that the program wants beyond them
    too_much_at: str = ""  # the line that wanted the first of them
    measured: float = 0.0  # of the device's time: the part with measured kernels
    # Of a step: other ranks are waited for, and the device has nothing else to do.
    network_bound: float = 0.0
    ranks: list[RankTime] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def verdict(self) -> str:
        parts = {
            "device-bound": self.device_bound,
            "launch-bound": self.launch_bound,
            "blocked on syncs": self.sync_bound,
            "network-bound": self.network_bound,
        }
        return max(parts, key=lambda part: parts[part])


def _busy(tasks: Sequence[Task], begin: float, end: float) -> list[list[float]]:
    """Return the spans in which tasks run, in order and without overlap."""
    spans: list[list[float]] = []
    for task in sorted((t for t in tasks if t.runs), key=lambda t: t.started):
        first, last = max(task.started, begin), min(task.ended, end)
        if first >= last:
            continue
        if spans and first <= spans[-1][1]:
            spans[-1][1] = max(spans[-1][1], last)
        else:
            spans.append([first, last])
    return spans


def analyse(
    run: Run,
    device: str,
    *,
    step_ns: float | None = None,
    what_if: Sequence[WhatIf] = (),
    notes: Sequence[str] = (),
    graph: Graph | None = None,
    step_is: str = "the whole run",
    peak_allocated: int = 0,
    peak_reserved: int = 0,
    **others: Any,
) -> Report:
    """Return the report of a run with at least two boundaries.

    `others` are fields of the report that a run does not tell. `step_ns` is the
    time of a step, where it is known better than from the run's ends.
    """
    steps = len(run.boundaries) - 1
    submits = [task.submitted for task in run.tasks]
    latest = 0.0
    ends = [latest := max(latest, task.ended) for task in run.tasks]

    def done(boundary: float) -> float:
        place = bisect_right(submits, boundary)
        return ends[place - 1] if place else boundary

    begin, end = done(run.boundaries[0]), done(run.boundaries[-1])
    whole = max(end - begin, 1.0)
    spans = _busy(run.tasks, begin, end)
    kernels = [task for task in run.tasks if not task.collective]
    work = sum(last - first for first, last in _busy(kernels, begin, end))
    network = sum(last - first for first, last in spans) - work
    idle_of = _idle(run, spans, begin, end)
    idle = sum(idle_of.values())
    launch_idle = sum(ns for (_, why), ns in idle_of.items() if why == _LAUNCHES)
    sync_idle = idle - launch_idle
    total = work + network + launch_idle + sync_idle or 1.0
    first, last = run.boundaries[0], run.boundaries[-1]
    inside = [t for t in run.tasks if first < t.submitted <= last]
    depths = sorted(task.depth for task in inside) or [0]
    host = _host_ns(inside, run.waits, last)
    seen = whole / steps if step_ns is None else step_ns
    ours = [task for task in inside if task.runs and not task.collective]
    work_ns = sum(task.ended - task.started for task in ours)
    known_ns = sum(task.ended - task.started for task in ours if task.measured)
    return Report(
        device=device,
        step_is=step_is,
        steps=steps,
        step_us=seen / 1e3,
        device_bound=work / total,
        launch_bound=launch_idle / total,
        sync_bound=sync_idle / total,
        network_bound=network / total,
        launches=len(inside) / steps,
        depth_median=depths[len(depths) // 2],
        depth_max=depths[-1],
        peak_allocated=peak_allocated,
        peak_reserved=peak_reserved,
        operators=_operators(inside, host, steps),
        blames=_blames(run, inside, host, idle_of, steps),
        what_if=list(what_if),
        graph=graph,
        notes=list(notes),
        measured=known_ns / work_ns if work_ns else 0.0,
        **others,
    )


def _idle(
    run: Run, spans: list[list[float]], begin: float, end: float
) -> dict[tuple[str, str], float]:
    """Return for how long the device has nothing to do, by line and reason.

    If the host was in a wait when the device ran out of work, that wait is to
    blame; else it is the launch of the task that came next.
    """
    gaps, at = [], begin
    for first, last in spans:
        if first > at:
            gaps.append((at, first))
        at = last
    if end > at:
        gaps.append((at, end))
    starts = [wait.begun for wait in run.waits]
    launched = {task.started: task.where for task in run.tasks if task.runs}
    idle_of: dict[tuple[str, str], float] = defaultdict(float)
    for first, last in gaps:
        place = bisect_right(starts, first)
        wait = run.waits[place - 1] if place else None
        if wait and wait.ended >= first and wait.reason != "full_queue":
            idle_of[wait.where, wait.reason] += last - first
        else:
            idle_of[launched.get(last, "?"), _LAUNCHES] += last - first
    return idle_of


def _host_ns(tasks: Sequence[Task], waits: Sequence[Wait], end: float) -> list[float]:
    """Return how long the host is busy from each launch to the next one."""
    found = []
    starts = [wait.begun for wait in waits]
    for begun, after in pairwise([*(task.submitted for task in tasks), end]):
        took = after - begun
        place = bisect_right(starts, begun)
        while place < len(waits) and waits[place].begun < after:
            took -= min(waits[place].ended, after) - waits[place].begun
            place += 1
        found.append(max(took, 0.0))
    return found


def _operators(
    tasks: Sequence[Task], host_ns: Sequence[float], steps: int
) -> list[Operator]:
    calls: dict[str, int] = defaultdict(int)
    device: dict[str, float] = defaultdict(float)
    measured: dict[str, float] = defaultdict(float)
    host: dict[str, float] = defaultdict(float)
    for task, took in zip(tasks, host_ns, strict=True):
        calls[task.name] += 1
        if task.runs:
            device[task.name] += task.ended - task.started
        if task.measured:
            measured[task.name] += task.ended - task.started
        host[task.name] += took
    rows = [
        Operator(
            name,
            n / steps,
            device[name] / steps / 1e3,
            host[name] / steps / 1e3,
            measured[name] / device[name] if device[name] else 0.0,
        )
        for name, n in calls.items()
    ]
    return sorted(rows, key=lambda row: -row.device_us)


def _blames(
    run: Run,
    tasks: Sequence[Task],
    host_ns: Sequence[float],
    idle_of: dict[tuple[str, str], float],
    steps: int,
) -> list[Blame]:
    count: dict[tuple[str, str], int] = defaultdict(int)
    took: dict[tuple[str, str], float] = defaultdict(float)
    for wait in run.waits:
        if run.boundaries[0] <= wait.begun <= run.boundaries[-1]:
            count[wait.where, wait.reason] += 1
            took[wait.where, wait.reason] += wait.ended - wait.begun
    for task, ns in zip(tasks, host_ns, strict=True):
        count[task.where, _LAUNCHES] += 1
        took[task.where, _LAUNCHES] += ns
    rows = [
        Blame(
            where,
            reason,
            count[where, reason] / steps,
            took[where, reason] / steps / 1e3,
            idle_of.get((where, reason), 0.0) / steps / 1e3,
        )
        for where, reason in {*count, *idle_of}
    ]
    return sorted(rows, key=lambda row: (-row.idle_us, -row.host_us, row.where))
