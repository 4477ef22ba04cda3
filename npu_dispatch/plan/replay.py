"""The time that a recorded run would take with a host or device of another speed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Run", "Task", "Wait", "step_ns"]


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
    kind: str = "kernel"  # or "copy", "collective", "wait"


@dataclass(frozen=True, slots=True)
class Wait:
    """The host waited for the device."""

    reason: str
    where: str
    begun: float
    ended: float


@dataclass(frozen=True, slots=True)
class Run:
    """A recorded run: tasks as they were submitted, and waits as they began."""

    tasks: Sequence[Task]
    waits: Sequence[Wait]
    boundaries: Sequence[float]  # ends of steps, on the host
    launch_ns: float  # from the submission to the earliest start
    kernel_ns: float  # of each task beside its work


def step_ns(
    run: Run, *, host: float = 1.0, device: float = 1.0, work: float = 1.0
) -> float:
    """Return the time of a step with a host and a device that many times as fast.

    With `work`, each task's work is so many times as large. The order of launches
    and the waits are those of the recorded run.
    """
    # Waits come before tasks of the same moment, boundaries after both.
    events: list[tuple[float, int, int]] = [
        *((task.submitted, 1, i) for i, task in enumerate(run.tasks)),
        *((wait.begun, 0, i) for i, wait in enumerate(run.waits)),
        *((at, 2, i) for i, at in enumerate(run.boundaries)),
    ]
    events.sort()
    ends = sorted(task.ended for task in run.tasks if task.runs)
    free: dict[tuple[int, int], float] = {}
    done: dict[tuple[tuple[int, int], int], float] = {}
    steps: list[float] = []
    clock = 0.0  # of the new host
    last = events[0][0] if events else 0.0
    for at, kind, index in events:
        clock += max(0.0, at - last) / host
        last = max(last, at)
        if kind == 1:
            task = run.tasks[index]
            begun = max(clock + run.launch_ns / device, free.get(task.stream, 0.0))
            if task.after is not None:
                begun = max(begun, done.get(task.after, 0.0))
            took = 0.0
            if task.runs:
                own = min(run.kernel_ns, task.ended - task.started)
                took = (own + (task.ended - task.started - own) * work) / device
            elif task.after is None:
                begun = free.get(task.stream, 0.0)  # takes no time of the device
            free[task.stream] = done[task.stream, task.number] = begun + took
        elif kind == 0:
            wait = run.waits[index]
            late = wait.ended - _last_before(ends, wait.ended)
            late = min(max(late, 0.0), wait.ended - wait.begun)
            clock = max([clock, *free.values()]) + late
            last = max(last, wait.ended)
        else:
            steps.append(max(free.values(), default=clock))
    if len(steps) < 2:
        return 0.0
    return (steps[-1] - steps[0]) / (len(steps) - 1)


def _last_before(sorted_times: list[float], at: float) -> float:
    place = bisect_right(sorted_times, at)
    return sorted_times[place - 1] if place else at
