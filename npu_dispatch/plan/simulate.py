"""A recorded program on a stated device: its tasks and waits, as they would be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from npu_dispatch.observe.segment.layout import OPEN_WAIT_REASONS
from npu_dispatch.plan.recording import ENTRY, Act, Recording
from npu_dispatch.plan.run import Run, Task, Wait
from npu_dispatch.plan.sheet import Sheet

__all__ = ["Speeds", "run_of", "step_ns"]

# The mirrors of csrc/plan/simulation.h.
_TASK = np.dtype(
    [
        ("submitted", "u8"),
        ("started", "u8"),
        ("ended", "u8"),
        ("number", "u8"),
        ("stream", "u4"),
        ("what", "u4"),
        ("site", "u4"),
        ("depth", "u4"),
        ("after_number", "u8"),
        ("after_stream", "u4"),
        ("pad", "u4"),
    ]
)
_WAIT = np.dtype([("begun", "u8"), ("ended", "u8"), ("reason", "u4"), ("site", "u4")])
_STEP = np.dtype([("host", "u8"), ("device", "u8")])
_NO_WORK = 2**32 - 1
# The steps are repeated until queues are as full as they become.
_LEAST_REPEATS, _MOST_REPEATS, _ENTRIES = 2, 20, 30_000


@dataclass(frozen=True, slots=True)
class Speeds:
    """How many times as fast as recorded or stated; `work`: as much of each task."""

    host: float = 1.0
    device: float = 1.0
    work: float = 1.0


def _simulated(
    recording: Recording, sheet: Sheet, speeds: Speeds, stated: Sequence[float]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    entries, repeats = recording.entries, 1
    if recording.step_count:
        repeats = -(-_ENTRIES // max(len(entries), 1))
        repeats = min(max(repeats, _LEAST_REPEATS), _MOST_REPEATS)
    else:
        bound = np.zeros(1, ENTRY)
        bound["act"] = Act.STEP
        entries = np.concatenate([bound, entries, bound])
    # The network is as fast beside a faster device.
    on_device = (work["type"] != "collective" for work in recording.program.works)
    tasks, waits, steps = recording.program.simulate(
        entries.tobytes(),
        sheet.driver_text(slower=1 / speeds.device),
        host=speeds.host,
        work=speeds.work,
        stated=[
            ns / speeds.device if own else ns
            for ns, own in zip(stated, on_device, strict=False)
        ],
        repeats=repeats,
    )
    return (
        np.frombuffer(tasks, _TASK),
        np.frombuffer(waits, _WAIT),
        np.frombuffer(steps, _STEP)[-(recording.step_count or 1) - 1 :],
    )


def step_ns(
    recording: Recording,
    sheet: Sheet,
    speeds: Speeds = Speeds(),
    stated: Sequence[float] = (),
) -> float:
    """Return the time of a step, between the ends of two steps' last tasks."""
    *_, steps = _simulated(recording, sheet, speeds, stated)
    ends = steps["device"]
    return float(ends[-1] - ends[0]) / (len(ends) - 1)


def run_of(
    recording: Recording,
    sheet: Sheet,
    line_of: Callable[[int], str],
    speeds: Speeds = Speeds(),
    stated: Sequence[float] = (),
) -> Run:
    """Return what the steps do once queues are as full as they become."""
    tasks, waits, steps = _simulated(recording, sheet, speeds, stated)
    first, last = steps["host"][0], steps["host"][-1]
    # Of the time before, what may still be under way.
    tasks = tasks[(tasks["ended"] >= first) & (tasks["submitted"] <= last)]
    waits = waits[(waits["ended"] >= first) & (waits["begun"] <= last)]
    streams = recording.program.streams
    works = recording.program.works
    lines: dict[int, str] = {}

    def line(site: int) -> str:
        if site not in lines:
            lines[site] = line_of(site) or "?"
        return lines[site]

    def task_of(row: tuple[int, ...]) -> Task:
        submitted, started, ended, number, *which = row
        stream, what, site, depth, after_number, after_stream, _ = which
        work = works[what] if what != _NO_WORK else None
        collective = bool(work and work["type"] == "collective")
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
            where=line(site),
            collective=collective,
            measured=what < len(stated) and stated[what] >= 0 and not collective,
        )

    return Run(
        [task_of(row) for row in tasks.tolist()],
        [
            Wait(OPEN_WAIT_REASONS[reason], line(site), float(begun), float(ended))
            for begun, ended, reason, site in waits.tolist()
        ],
        [float(at) for at in steps["host"]],
    )
