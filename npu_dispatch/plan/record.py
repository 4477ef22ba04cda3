"""Run a program on an emulated device, and record what it does, without torch."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npu_dispatch.config import for_child
from npu_dispatch.plan.analysis import Graph, Report, analyse
from npu_dispatch.plan.replay import Run, Task, Wait
from npu_dispatch.plan.sheet import Sheet
from npu_dispatch.system.own_python import own_python
from npu_dispatch.timeline.trace import follow
from npu_dispatch.timeline.tracks import Process

__all__ = ["PlanError", "Recorded", "record"]

# Tasks by which the engine keeps order and time, which are no work of the device.
_NO_WORK = {"wait", "record", "range marker", "event record"}

_STEPS, _LEAST_NS = 10, 250_000_000


class PlanError(RuntimeError):
    """The program did not come far enough for a plan."""


@dataclass(frozen=True, slots=True)
class Recorded:
    run: Run
    report: Report
    process: Process


def record(
    command: Sequence[str],
    sheet: Sheet,
    *,
    module: bool = False,
    steps: int | None = None,
    warmup: int = 3,
    host_speed: float = 1.0,
) -> Recorded:
    """Return what SCRIPT [ARGS] does on a device: its last `steps` steps.

    With None it is 10 steps, and as many more as take a quarter of a second: a few
    short steps would tell more about chance than about the program.

    `host_speed` is the speed of the host that is meant, divided by this one's. Every
    time of the device is then made so many times as long, and the times that are
    returned are those of the other host.
    """
    with tempfile.TemporaryDirectory(prefix="npu_plan-") as name:
        folder = Path(name)
        rings = folder / "trace"
        rings.mkdir()
        what, out = folder / "what.json", folder / "out.json"
        what.write_text(
            json.dumps(
                {
                    "steps": (steps or _STEPS) + warmup + 1,
                    "least_ns": 0 if steps else _LEAST_NS,
                    "module": module,
                    "out": str(out),
                }
            )
        )
        variables = for_child(
            NPU_DRIVER="emulated",
            NPU_EMULATED=sheet.driver_text(slower=host_speed),
            NPU_TRACE_DIR=str(rings),
        )
        child = subprocess.Popen(
            own_python("-m", "npu_dispatch.plan.child", str(what), *command),
            env=variables,
            stdout=sys.stderr,
        )
        processes = follow(child, rings)
        if not out.is_file():
            raise PlanError(
                f"on {sheet.name}: the program ended with status {child.returncode} "
                "before there was anything to plan with; its own output says why"
            )
        seen = json.loads(out.read_text())
    if seen["failure"]:
        raise PlanError(f"on {sheet.name}: {seen['failure']}")
    busy = {p.pid: p for p in processes if any(t.slices for t in p.streams)}
    if child.pid not in busy:
        others = (
            f"; {len(busy)} processes that it started did, and only the program's own "
            "can be planned: plan what it starts, as one rank"
        )
        raise PlanError(
            f"on {sheet.name}: the program launched nothing on the device 'npu'"
            f"{others if busy else ''}"
        )
    return _recorded(busy[child.pid], seen, sheet, warmup, host_speed)


def _recorded(
    process: Process, seen: dict[str, Any], sheet: Sheet, warmup: int, scale: float
) -> Recorded:
    boundaries, notes = seen["boundaries"], []
    step_is = seen["step_is"]
    # The first steps differ from later ones, as they fill caches and make state.
    if len(boundaries) > warmup + 1:
        boundaries = boundaries[warmup:]
    elif len(boundaries) > 1:
        notes.append(
            f"The program ended after {len(boundaries)} steps. The first {warmup} are "
            "counted, too, though they fill caches and make state: let it run longer."
        )
    else:
        boundaries, step_is = [seen["begun"], seen["ended"]], "the whole run"
    if len(seen["boundaries"]) > 1 and seen["graph"] is None:
        notes.append(
            "The program ended before a step was left to capture into a graph: "
            "--steps says how many come before that one."
        )
    lost = sum(track.lost for track in process.streams)
    if lost:
        raise PlanError(f"on {sheet.name}: {lost} tasks were not recorded in time")
    first, last = boundaries[0], boundaries[-1]
    tasks = []
    for track in process.streams:
        for piece in track.slices:
            # Of the time before that, only what may still be under way is kept.
            if piece.ended < first or piece.submitted > last:
                continue
            tasks.append(
                Task(
                    name=piece.name,
                    stream=(track.device, track.stream),
                    number=piece.position + 1,
                    submitted=piece.submitted / scale,
                    started=piece.started / scale,
                    ended=piece.ended / scale,
                    depth=piece.depth,
                    runs=piece.waited_for is None and piece.name not in _NO_WORK,
                    after=_after(piece.waited_for),
                    where=piece.line or "?",
                )
            )
    tasks.sort(key=lambda task: task.submitted)
    waits = [
        Wait(reason, where or "?", begun / scale, ended / scale)
        for reason, where, begun, ended in seen["waits"]
        if ended >= first and begun <= last
    ]
    latency = sheet.numbers["latency_us"]
    run = Run(
        tasks,
        sorted(waits, key=lambda wait: wait.begun),
        [at / scale for at in boundaries],
        latency["launch"] * 1e3,
        latency["kernel"] * 1e3,
    )
    report = analyse(
        run,
        sheet.name,
        peak_allocated=seen["allocated"],
        peak_reserved=seen["reserved"],
        graph=_graph(seen["graph"], scale),
        step_is=step_is,
        notes=notes,
    )
    return Recorded(run, report, process)


def _graph(seen: dict[str, Any] | None, scale: float) -> Graph | None:
    if seen is None:
        return None
    if "ns" in seen:
        return Graph(seen["ns"] / scale / 1e3, "", "")
    return Graph(None, seen["why"], seen["where"])


def _after(
    waited_for: tuple[int, int, int] | None,
) -> tuple[tuple[int, int], int] | None:
    if waited_for is None:
        return None
    device, stream, number = waited_for
    return (device, stream), number
