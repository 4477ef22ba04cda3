"""The report as one HTML file, with the timeline of the last steps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from xml.etree.ElementTree import Element

from npu_dispatch.drawing import bar, element, report, table
from npu_dispatch.plan import timeline
from npu_dispatch.plan.analysis import Report
from npu_dispatch.plan.record import Recorded
from npu_dispatch.plan.show import graph_refused, time_text

__all__ = ["write"]

_MOST_ROWS = 20


def write(recorded: Sequence[Recorded], path: Path) -> None:
    """Write the page as one file, which loads nothing from elsewhere."""
    when = time.strftime("%Y-%m-%d %H:%M")
    sentence = f"{when}. Times are predictions from a device's sheet."
    path.write_text(
        report(
            "npu-dispatch plan",
            element("h1", "Plan"),
            element("p", sentence, class_="dim"),
            *(part for one in recorded for part in _device(one)),
            style=timeline.STYLE,
            script=timeline.SCRIPT,
        )
    )


def _device(one: Recorded) -> list[Element]:
    r = one.report
    sections = [
        element("h2", r.device),
        _section("A step", _cards(r), _where_time_goes(r)),
        _section("What if", _what_if(r)),
    ]
    if r.blames:
        sections.append(_section("Lines", _blames(r)))
    sections += [
        _section("Operators", _operators(r)),
        _section("Timeline", timeline.drawn(one)),
    ]
    return sections


def _section(title: str, *parts: Element) -> Element:
    return element("section", element("h3", title), *parts)


def _cards(r: Report) -> Element:
    figures = {
        "predicted time": time_text(r.step_us),
        "verdict": r.verdict,
        "launches": f"{r.launches:,.1f}",
        "queued, median / most": f"{r.depth_median:,.0f} / {r.depth_max:,}",
        "peak memory": f"{r.peak_allocated / 2**20:,.1f} MiB",
    }
    cards = [
        element("div", element("b", value), element("span", name, class_="dim"))
        for name, value in figures.items()
    ]
    for card in cards:
        card.set("class", "card")
    return element("div", *cards, class_="cards")


def _where_time_goes(r: Report) -> Element:
    return bar(
        [
            ("device works", r.device_bound, "--device-bound"),
            ("device waits for launches", r.launch_bound, "--launch-bound"),
            ("device waits behind a sync", r.sync_bound, "--blocked"),
        ]
    )


def _what_if(r: Report) -> Element:
    rows = [
        [change.what, time_text(change.step_us), f"{change.speedup:.2f}x"]
        for change in r.what_if
    ]
    what_if = element("div", table(["change", "step", "throughput"], rows))
    if why := graph_refused(r):
        what_if.append(element("p", why))
    return what_if


def _blames(r: Report) -> Element:
    rows = [
        [
            blame.where,
            blame.reason,
            f"{blame.times:,.1f}",
            time_text(blame.host_us),
            time_text(blame.idle_us),
        ]
        for blame in r.blames[:_MOST_ROWS]
    ]
    return table(["line", "why", "times a step", "host", "device idle"], rows)


def _operators(r: Report) -> Element:
    rows = [
        [
            operator.name,
            f"{operator.calls:.1f}",
            time_text(operator.device_us),
            time_text(operator.host_us),
        ]
        for operator in r.operators[:_MOST_ROWS]
    ]
    return table(["operator", "calls a step", "device", "host"], rows)
