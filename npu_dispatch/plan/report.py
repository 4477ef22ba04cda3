"""What a simulated run says: where a step's time goes, and what would change it."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from npu_dispatch.plan.simulate import Run, Task, Wait

__all__ = ["Blame", "Graph", "Operator", "RankTime", "Report", "WhatIf", "analyse"]

# The reason in a Blame of a line that launches and does not wait.
_LAUNCHES = "launches"
_Span = tuple[float, float]
_Line = tuple[str, str]  # where, and the reason


@dataclass(frozen=True, slots=True)
class Operator:
    name: str
    calls: float  # a step
    device_us: float  # a step
    host_us: float  # a step: from its launch to the next one
    # Of its time on the device: the parts that were measured and interpolated. The rest
    # is modelled.
    measured: float = 0.0
    interpolated: float = 0.0


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
    why_not: str = ""
    where: str = ""


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
    operators: list[Operator]
    blames: list[Blame]
    step_is: str = "the whole run"  # or an optimizer's step(), a model's call
    peak_allocated: int = 0  # bytes
    peak_reserved: int = 0
    what_if: list[WhatIf] = field(default_factory=list)
    graph: Graph | None = None  # None: no step was left to capture
    notes: list[str] = field(default_factory=list)  # to be known of the figures
    script: str = ""  # as it was named
    # Between these lie the steps that were seen.
    least_us: float = 0.0
    most_us: float = 0.0
    memory: int = 0  # bytes that the device has
    too_much: int = 0  # bytes that the program wants beyond them
    too_much_at: str = ""  # the line that wanted the first of them
    # Of the device's time: the parts whose kernels were measured, and interpolated.
    measured: float = 0.0
    interpolated: float = 0.0
    # Of a step: other ranks are waited for, and the device has nothing else to do.
    network_bound: float = 0.0
    ranks: list[RankTime] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        parts = {
            "device-bound": self.device_bound,
            "launch-bound": self.launch_bound,
            "blocked on syncs": self.sync_bound,
            "network-bound": self.network_bound,
        }
        return max(parts, key=lambda part: parts[part])


def analyse(run: Run, device: str, **others: Any) -> Report:
    """Return the report of a run with at least two boundaries.

    `others` are fields of the report that a run does not tell, or that are known
    better, such as `step_us`.
    """
    steps = len(run.boundaries) - 1
    first, last = run.boundaries[0], run.boundaries[-1]
    begin, end = _done(run, first), _done(run, last)
    spans = _busy(run.tasks, begin, end)
    own_spans = _busy([task for task in run.tasks if not task.collective], begin, end)
    work, busy = _length(own_spans), _length(spans)
    idle_of = _idle(run, spans, begin, end)
    launch_idle = sum(ns for (_, why), ns in idle_of.items() if why == _LAUNCHES)
    sync_idle = sum(idle_of.values()) - launch_idle
    total = busy + launch_idle + sync_idle or 1.0
    inside = [task for task in run.tasks if first < task.submitted <= last]
    depths = sorted(task.depth for task in inside) or [0]
    host = _host_ns(inside, run.waits, last)
    ours = [task for task in inside if task.runs and not task.collective]
    return Report(
        device=device,
        steps=steps,
        device_bound=work / total,
        launch_bound=launch_idle / total,
        sync_bound=sync_idle / total,
        network_bound=(busy - work) / total,
        launches=len(inside) / steps,
        depth_median=depths[len(depths) // 2],
        depth_max=depths[-1],
        operators=_operators(inside, host, steps),
        blames=_blames(run, inside, host, idle_of, steps),
        **{"step_us": max(end - begin, 1.0) / steps / 1e3, **_origins(ours), **others},
    )


def _done(run: Run, boundary: float) -> float:
    """Return when the device is done with what was launched before a boundary."""
    before = [task.ended for task in run.tasks if task.submitted <= boundary]
    return max(before, default=boundary)


def _busy(tasks: Iterable[Task], begin: float, end: float) -> list[_Span]:
    """Return the spans in which tasks run, in order and without overlap."""
    spans: list[_Span] = []
    for task in sorted((t for t in tasks if t.runs), key=lambda t: t.started):
        first, last = max(task.started, begin), min(task.ended, end)
        if first >= last:
            continue
        if spans and first <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], last))
        else:
            spans.append((first, last))
    return spans


def _length(spans: Iterable[_Span]) -> float:
    return sum(last - first for first, last in spans)


def _origins(tasks: Sequence[Task]) -> dict[str, float]:
    """Return which parts of the tasks' time were measured and interpolated."""
    total = sum(task.ended - task.started for task in tasks) or 1.0
    return {
        origin: sum(t.ended - t.started for t in tasks if t.origin == origin) / total
        for origin in ("measured", "interpolated")
    }


def _idle(
    run: Run, spans: Sequence[_Span], begin: float, end: float
) -> dict[_Line, float]:
    """Return for how long the device has nothing to do, by line and reason.

    If the host was in a wait when the device ran out of work, that wait is to
    blame; else it is the launch of the task that came next.
    """
    starts = [wait.begun for wait in run.waits]
    launched = {task.started: task.where for task in run.tasks if task.runs}
    idle_of: dict[_Line, float] = defaultdict(float)
    for (_, first), (last, _) in pairwise([(begin, begin), *spans, (end, end)]):
        if last <= first:
            continue
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
    calls: dict[str, list[tuple[Task, float]]] = defaultdict(list)
    for task, took in zip(tasks, host_ns, strict=True):
        calls[task.name].append((task, took))
    rows = []
    for name, of in calls.items():
        ran = [task for task, _ in of if task.runs]
        device = sum(task.ended - task.started for task in ran)
        host = sum(took for _, took in of)
        per_step = len(of) / steps, device / steps / 1e3, host / steps / 1e3
        rows.append(Operator(name, *per_step, **_origins(ran)))
    return sorted(rows, key=lambda row: -row.device_us)


def _blames(
    run: Run,
    tasks: Sequence[Task],
    host_ns: Sequence[float],
    idle_of: dict[_Line, float],
    steps: int,
) -> list[Blame]:
    host: dict[_Line, list[float]] = defaultdict(list)
    for wait in run.waits:
        if run.boundaries[0] <= wait.begun <= run.boundaries[-1]:
            host[wait.where, wait.reason].append(wait.ended - wait.begun)
    for task, ns in zip(tasks, host_ns, strict=True):
        host[task.where, _LAUNCHES].append(ns)
    rows = []
    for line in {*host, *idle_of}:
        took, idle = host[line], idle_of.get(line, 0.0)
        per_step = len(took) / steps, sum(took) / steps / 1e3, idle / steps / 1e3
        rows.append(Blame(*line, *per_step))
    return sorted(rows, key=lambda row: (-row.idle_us, -row.host_us, row.where))
