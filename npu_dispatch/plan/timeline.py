"""What streams and host did in the last steps, as a picture that can be widened."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from xml.etree.ElementTree import Element

from npu_dispatch.drawing import element, legend
from npu_dispatch.plan.record import Recorded
from npu_dispatch.plan.replay import Task, Wait

__all__ = ["SCRIPT", "STYLE", "drawn"]

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


def drawn(one: Recorded) -> Element:
    """Return the picture of the last tasks, with its legend."""
    tasks = list(one.run.tasks)[-_MOST_BARS:]
    begin = min((task.submitted for task in tasks), default=0.0)
    scale = _Scale(begin, max((task.ended for task in tasks), default=1.0))
    waits = [wait for wait in one.run.waits if wait.ended >= begin]
    rows = {
        stream: _TOP + i * _ROW
        for i, stream in enumerate(sorted({t.stream for t in tasks if t.runs}))
    }
    host = _TOP + len(rows) * _ROW
    depth = host + _ROW + 10
    top = [operator.name for operator in one.report.operators[:_MOST_NAMES]]
    colours = {name: f"--hue-{i}" for i, name in enumerate(top)}
    paper = element(
        "svg",
        *_axis(scale, depth + _DEPTH),
        *_steps(one.run.boundaries, scale, depth + _DEPTH),
        *(_task(t, rows[t.stream], colours, scale) for t in tasks if t.runs),
        *(_wait(wait, host, scale) for wait in waits),
        _depths(tasks, scale, depth),
        class_="paper",
        height=depth + _DEPTH + 4,
    )
    most = max((task.depth for task in tasks), default=0)
    names = [(f"stream {d}:{s}", y + _BAR - 6) for (d, s), y in rows.items()]
    names += [("host", host + _BAR - 6), (f"queued, to {most}", depth + _DEPTH // 2)]
    labels = element(
        "svg",
        *(element("text", name, x=0, y=y) for name, y in names),
        class_="names",
        height=depth + _DEPTH + 4,
    )
    return element(
        "div",
        _zoom(),
        element("div", labels, element("div", paper, class_="window"), class_="view"),
        element("output", "Point at a bar for its times and its line."),
        legend([*colours.items(), ("others", "--hue-7"), ("host blocked", "--hung")]),
        class_="timeline",
    )


def _zoom() -> Element:
    """Return buttons; the style sheet widens the picture by which is checked."""
    buttons = [
        element(
            "label",
            element(
                "input",
                type="radio",
                name="zoom",
                value=str(zoom),
                checked="" if zoom == 1 else None,
            ),
            f"{zoom}x",
        )
        for zoom in _ZOOMS
    ]
    return element("form", "zoom ", *buttons, class_="zoom")


def _bar(y: float, begin: str, width: str, colour: str, text: str) -> Element:
    return element(
        "rect",
        element("title", text),
        x=begin,
        y=y,
        width=width,
        height=_BAR,
        fill=f"var({colour})",
    )


def _task(task: Task, y: float, colours: dict[str, str], scale: _Scale) -> Element:
    took = (task.ended - task.started) / 1e3
    text = (
        f"{task.name}: {took:,.2f} µs at {(task.started - scale.begin) / 1e3:,.1f} µs, "
        f"{(task.started - task.submitted) / 1e3:,.1f} µs after its launch at "
        f"{task.where}; {task.depth} queued"
    )
    colour = colours.get(task.name, "--hue-7")
    begin, width = scale.at(task.started), scale.wide(task.ended - task.started)
    return _bar(y, begin, width, colour, text)


def _wait(wait: Wait, y: float, scale: _Scale) -> Element:
    begin = max(wait.begun, scale.begin)
    took = (wait.ended - wait.begun) / 1e3
    text = f"host blocked: {wait.reason} at {wait.where}: {took:,.2f} µs"
    return _bar(y, scale.at(begin), scale.wide(wait.ended - begin), "--hung", text)


def _steps(ends: Sequence[float], scale: _Scale, height: float) -> Iterator[Element]:
    for end in ends:
        if scale.begin <= end <= scale.begin + scale.span:
            x = scale.at(end)
            line = element("line", x1=x, x2=x, y1=_TOP - 4, y2=height, class_="step")
            line.append(element("title", "the end of a step"))
            yield line


def _axis(scale: _Scale, height: float) -> Iterator[Element]:
    """Return a group of ticks for each zoom, of which the style sheet shows one."""
    for zoom in _ZOOMS:
        step = _round_step(scale.span / (_TICKS * zoom))
        pieces = chain.from_iterable(
            _tick(i * step, scale, height) for i in range(int(scale.span / step) + 1)
        )
        yield element("g", *pieces, class_=f"ticks at-{zoom}")


def _round_step(about: float) -> float:
    """Return 1, 2 or 5 times a power of ten, at least `about`."""
    power = 10.0 ** math.floor(math.log10(about))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= about * (1 - 1e-9))


def _tick(ns: float, scale: _Scale, height: float) -> tuple[Element, Element]:
    x = scale.at(scale.begin + ns)
    text = f"{ns / 1e6:,.6g} ms" if scale.span >= 1e7 else f"{ns / 1e3:,.6g} µs"
    # The last one would not be seen whole to the right of its line.
    side = {"dx": -3, "text_anchor": "end"} if ns > 0.93 * scale.span else {"dx": 3}
    return (
        element("line", x1=x, x2=x, y1=_TOP - 4, y2=height),
        element("text", text, x=x, y=14, **side),
    )


def _depths(tasks: Sequence[Task], scale: _Scale, top: float) -> Element:
    """Return how many tasks were queued when each one ended, as an area."""
    most = max((task.depth for task in tasks), default=0) or 1
    path = ["M0 1"]
    for task in sorted(tasks, key=lambda task: task.ended):
        path.append(f"H{(task.ended - scale.begin) / scale.span:.7f}")
        path.append(f"V{1 - task.depth / most:.4f}")
    return element(
        "svg",
        element("path", d="".join([*path, "H1V1Z"])),
        class_="depth",
        viewBox="0 0 1 1",
        preserveAspectRatio="none",
        y=top,
        width="100%",
        height=_DEPTH,
    )
