"""What host, streams and links did in the last steps, as a picture to widen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from npu_dispatch.plan.page.hues import class_of, colour_of
from npu_dispatch.plan.page.ticks import round_step
from npu_dispatch.plan.run import Run, Task, Wait
from npu_dispatch.plan.texts import size_text, time_text

__all__ = ["SCRIPT", "STYLE", "places"]

_HERE = Path(__file__).parent
STYLE = (_HERE / "timeline.css").read_text()
SCRIPT = (_HERE / "timeline.js").read_text()

_MOST_BARS = 1500
_MOST_NAMES = 12  # in the legend
_STEPS = 2
_ZOOMS = (1, 4, 16, 64)
_TICKS = 6  # about, at each zoom, in what is seen at once
_ROW, _TOP, _AREA = 30, 26, 80  # pixels
# What has rows of its own beside the streams' kernels, from the top.
_LINKS = {"copy": "copies", "collective": "collectives"}

Row = tuple[int, tuple[int, int]]  # place of the kind, stream


class _Window:
    """Places of times: in percent of the width, or in 100,000ths for paths."""

    def __init__(self, begin: float, end: float) -> None:
        self.begin, self.end, self.span = begin, end, max(end - begin, 1.0)

    def at(self, ns: float) -> str:
        return _short(100 * (ns - self.begin) / self.span, 3)

    def wide(self, begun: float, ended: float) -> str:
        """Return the width of what is seen of a span."""
        seen = min(ended, self.end) - max(begun, self.begin)
        return _short(100 * seen / self.span, 4)

    def point(self, ns: float) -> int:
        return round(1e5 * (ns - self.begin) / self.span)


class _Words:
    """Numbers for texts, which many bars have in common."""

    def __init__(self) -> None:
        self._number: dict[str, int] = {}

    def number(self, text: str) -> int:
        return self._number.setdefault(text, len(self._number))

    @property
    def texts(self) -> list[str]:
        return list(self._number)


class _Bar(NamedTuple):
    x: str
    width: str
    kind: str  # the class, which has the colour
    says: str  # figures, and numbers of texts, of which the script makes sentences


def places(run: Run, hues: Mapping[str, int]) -> dict[str, Any]:
    """Return what is where in the picture of the last tasks."""
    tasks, window = _last(run)
    words = _Words()
    rows: dict[Row, list[_Bar]] = {}
    for task in tasks:
        row = (["kernel", *_LINKS].index(task.kind), task.stream)
        rows.setdefault(row, []).append(_task(task, hues, words, window))
    top = _TOP + _ROW
    drawn = []
    for row, bars in sorted(rows.items()):
        drawn.append((top, _row_name(row), bars))
        top += _ROW
    submits = [t for t in run.tasks if window.begin <= t.submitted <= window.end]
    areas = []
    for name, most, path in _areas(run, tasks, window):
        areas.append({"y": top + 8, "name": name, "most": most, "path": path})
        top += _AREA + 8
    waits = [
        _wait(wait, words, window)
        for wait in run.waits
        if wait.ended > window.begin and wait.begun < window.end
    ]
    return {
        "zooms": _ZOOMS,
        "height": top + 14,
        "top": _TOP - 4,
        "bottom": top + 8,
        "host": {
            "y": _TOP,
            "known": window.wide(window.begin, run.boundaries[-1]),
            "waits": waits,
            "launches": _launches(submits, window),
        },
        "rows": drawn,
        "areas": areas,
        "area_height": _AREA,
        "ticks": [(zoom, list(_ticks(window, zoom))) for zoom in _ZOOMS],
        "steps": [
            window.at(at) for at in run.boundaries if window.begin <= at <= window.end
        ],
        "words": words.texts,
        "legend": _legend(tasks, hues),
    }


def _last(run: Run) -> tuple[list[Task], _Window]:
    """Return the tasks that ran during the last steps, and when that was.

    After the last step the device may have many tasks left. What it does then is
    seen for as long as a step takes.
    """
    bounds = list(run.boundaries)[-_STEPS - 1 :]
    step = (bounds[-1] - bounds[0]) / max(len(bounds) - 1, 1)
    begin, most = bounds[0], bounds[-1] + step
    seen = [t for t in run.tasks if t.runs and t.ended > begin and t.started < most]
    seen.sort(key=lambda task: task.started)
    if len(seen) > _MOST_BARS:
        seen = seen[-_MOST_BARS:]
        begin = seen[0].started
    end = max([bounds[-1], *(min(task.ended, most) for task in seen)])
    return seen, _Window(begin, end)


def _row_name(row: Row) -> str:
    kind, (device, stream) = row
    return f"{['stream', *_LINKS.values()][kind]} {device}:{stream}"


def _task(task: Task, hues: Mapping[str, int], words: _Words, window: _Window) -> _Bar:
    figures = [
        words.number(task.name),
        words.number(task.where),
        _short((task.ended - task.started) / 1e3, 2),
        _short((task.started - window.begin) / 1e3, 1),
        _short((task.started - task.submitted) / 1e3, 1),
        task.depth,
    ]
    return _Bar(
        window.at(max(task.started, window.begin)),
        window.wide(task.started, task.ended),
        class_of(hues[task.name]),
        ",".join(map(str, figures)),
    )


def _wait(wait: Wait, words: _Words, window: _Window) -> _Bar:
    took = _short((wait.ended - wait.begun) / 1e3, 2)
    return _Bar(
        window.at(max(wait.begun, window.begin)),
        window.wide(wait.begun, wait.ended),
        "w",
        f"{words.number(wait.reason)},{words.number(wait.where)},{took}",
    )


def _short(number: float, decimals: int) -> str:
    """Return it without zeros that say nothing: there are thousands of them."""
    text = f"{number:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _ticks(window: _Window, zoom: int) -> Iterator[tuple[str, str, bool]]:
    """Yield place and text of each tick, and whether its text stands at its left."""
    step = round_step(window.span / (_TICKS * zoom))
    in_ms = window.span >= 1e6
    for i in range(int(window.span / step) + 1):
        ns = i * step
        text = f"{ns / 1e6:,.6g} ms" if in_ms else f"{ns / 1e3:,.6g} µs"
        # The last one would not be seen whole to the right of its line.
        yield window.at(window.begin + ns), text, ns > (1 - 0.1 / zoom) * window.span


def _launches(tasks: Sequence[Task], window: _Window) -> str:
    """Return a line for each launch; two at one place are one."""
    points = dict.fromkeys(window.point(task.submitted) for task in tasks)
    return "".join(f"M{x} 0v1" for x in points)


def _areas(
    run: Run, seen: Sequence[Task], window: _Window
) -> Iterator[tuple[str, str, str]]:
    """Yield name, greatest value and outline: of tasks that are queued when each one
    ends, and of the memory that each device has in use at each launch."""
    ends = sorted((task.ended, task.depth) for task in seen)
    yield (
        "queue",
        str(max((depth for _, depth in ends), default=0)),
        _area(ends, window),
    )
    launched: dict[int, list[tuple[float, int]]] = {}
    for task in run.tasks:
        if task.kind != "wait" and task.submitted <= window.end:
            in_use = launched.setdefault(task.stream[0], [])
            in_use.append((task.submitted, task.allocated))
    for device, in_use in sorted(launched.items()):
        before = [value for at, value in in_use if at < window.begin][-1:]
        shown = [(window.begin, value) for value in before]
        shown += [(at, value) for at, value in in_use if at >= window.begin]
        most = max((value for _, value in shown), default=0)
        name = "memory" if len(launched) == 1 else f"memory {device}"
        yield name, size_text(most), _area(shown, window)


def _area(steps: Sequence[tuple[float, int]], window: _Window) -> str:
    """Return the outline of a value that changes at these times."""
    most = max((value for _, value in steps), default=0) or 1
    path, last = ["M0 1000"], 1000
    for at, value in steps:
        y = 1000 - round(1000 * value / most)
        if y != last:
            path.append(f"H{window.point(min(at, window.end))}V{y}")
            last = y
    return "".join([*path, "H100000V1000Z"])


def _legend(tasks: Sequence[Task], hues: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return the operators that take most of the time that is seen."""
    took: dict[str, float] = {}
    for task in tasks:
        took[task.name] = took.get(task.name, 0.0) + task.ended - task.started
    top = sorted(took, key=lambda name: -took[name])[:_MOST_NAMES]
    return [
        (f"{name} {time_text(took[name] / 1e3)}", colour_of(hues[name])) for name in top
    ]
