"""What streams and host did in the last steps, as a picture that can be widened."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from npu_dispatch.plan.run import Task, Wait
from npu_dispatch.plan.study import Recorded

__all__ = ["SCRIPT", "STYLE", "places"]

_HERE = Path(__file__).parent
STYLE = (_HERE / "timeline.css").read_text()
SCRIPT = (_HERE / "timeline.js").read_text()

_MOST_BARS = 4000
_MOST_NAMES = 7  # operators with a colour of their own; the others share one
_ZOOMS = (1, 4, 16, 64)
_TICKS = 8  # about, at each zoom, in what is seen at once
_ROW, _BAR, _TOP, _DEPTH = 32, 22, 26, 90  # pixels


class _Scale:
    """Places of times, in percent of the width."""

    def __init__(self, begin: float, end: float) -> None:
        self.begin, self.span = begin, max(end - begin, 1.0)

    def at(self, ns: float) -> str:
        return f"{100 * (ns - self.begin) / self.span:.4f}%"

    def wide(self, ns: float) -> str:
        return f"{100 * ns / self.span:.4f}%"


def places(one: Recorded) -> dict[str, Any]:
    """Return what is where in the picture of the last tasks."""
    tasks = list(one.run.tasks)[-_MOST_BARS:]
    begin = min((task.submitted for task in tasks), default=0.0)
    end = max((task.ended for task in tasks), default=1.0)
    scale = _Scale(begin, end)
    rows = {
        stream: _TOP + i * _ROW
        for i, stream in enumerate(sorted({t.stream for t in tasks if t.runs}))
    }
    host = _TOP + len(rows) * _ROW
    depth = host + _ROW + 10
    most = max((task.depth for task in tasks), default=0)
    names = [(f"stream {d}:{s}", y + _BAR - 6) for (d, s), y in rows.items()]
    names += [("host", host + _BAR - 6), (f"queued, to {most}", depth + _DEPTH // 2)]
    top = [operator.name for operator in one.report.operators[:_MOST_NAMES]]
    colours = {name: f"--hue-{i}" for i, name in enumerate(top)}
    bars = [
        _task(t, rows[t.stream], colours.get(t.name, "--hue-7"), scale)
        for t in tasks
        if t.runs
    ]
    bars += [_wait(wait, host, scale) for wait in one.run.waits if wait.ended >= begin]
    return {
        "zooms": _ZOOMS,
        "names": names,
        "height": depth + _DEPTH + 4,
        "top": _TOP - 4,
        "bottom": depth + _DEPTH,
        "ticks": {zoom: list(_ticks(scale, zoom)) for zoom in _ZOOMS},
        "steps": [scale.at(at) for at in one.run.boundaries if begin <= at <= end],
        "bars": bars,
        "bar_height": _BAR,
        "depth": {"y": depth, "height": _DEPTH, "path": _depths(tasks, scale)},
        "legend": [
            *colours.items(),
            ("others", "--hue-7"),
            ("host blocked", "--hung"),
        ],
    }


class _Bar(NamedTuple):
    y: float
    x: str
    width: str
    colour: str
    text: str


def _task(task: Task, y: float, colour: str, scale: _Scale) -> _Bar:
    took = (task.ended - task.started) / 1e3
    text = (
        f"{task.name}: {took:,.2f} µs at {(task.started - scale.begin) / 1e3:,.1f} µs, "
        f"{(task.started - task.submitted) / 1e3:,.1f} µs after its launch at "
        f"{task.where}; {task.depth} queued"
    )
    width = scale.wide(task.ended - task.started)
    return _Bar(y, scale.at(task.started), width, colour, text)


def _wait(wait: Wait, y: float, scale: _Scale) -> _Bar:
    begin = max(wait.begun, scale.begin)
    took = (wait.ended - wait.begun) / 1e3
    text = f"host blocked: {wait.reason} at {wait.where}: {took:,.2f} µs"
    return _Bar(y, scale.at(begin), scale.wide(wait.ended - begin), "--hung", text)


def _ticks(scale: _Scale, zoom: int) -> Iterator[tuple[str, str, bool]]:
    """Yield place and text of each tick, and whether its text stands at its left."""
    step = _round_step(scale.span / (_TICKS * zoom))
    for i in range(int(scale.span / step) + 1):
        ns = i * step
        text = f"{ns / 1e6:,.6g} ms" if scale.span >= 1e7 else f"{ns / 1e3:,.6g} µs"
        # The last one would not be seen whole to the right of its line.
        yield scale.at(scale.begin + ns), text, ns > 0.93 * scale.span


def _round_step(about: float) -> float:
    """Return 1, 2 or 5 times a power of ten, at least `about`."""
    power = 10.0 ** math.floor(math.log10(about))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= about * (1 - 1e-9))


def _depths(tasks: Sequence[Task], scale: _Scale) -> str:
    """Return how many tasks were queued when each one ended, as an area."""
    most = max((task.depth for task in tasks), default=0) or 1
    path = ["M0 1"]
    for task in sorted(tasks, key=lambda task: task.ended):
        path.append(f"H{(task.ended - scale.begin) / scale.span:.7f}")
        path.append(f"V{1 - task.depth / most:.4f}")
    return "".join([*path, "H1V1Z"])
