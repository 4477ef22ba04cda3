"""The report as one HTML file, with the timeline of the last steps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from npu_dispatch.plan.record import Recorded
from npu_dispatch.plan.show import graph_refused

__all__ = ["write"]

_MOST_BARS = 4000
_MOST_NAMES = 9

_STYLE = """body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:75em;
padding:0 1em}table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .8em;
border-bottom:1px solid #ccc;text-align:right}td:first-child,th:first-child{
text-align:left}h2{margin-top:2em}"""


def write(recorded: Sequence[Recorded], path: Path) -> None:
    """Write the page as one file, which loads nothing from elsewhere."""
    parts = []
    for index, one in enumerate(recorded):
        figure = _timeline(one)
        parts.append(f"<h2>{escape(one.report.device)}</h2>")
        parts.append(_tables(one))
        parts.append(figure.to_html(full_html=False, include_plotlyjs=index == 0))
    when = time.strftime("%Y-%m-%d %H:%M")
    path.write_text(
        "<!doctype html><html lang=en><meta charset=utf-8><title>npu-dispatch plan"
        f"</title><style>{_STYLE}</style><h1>Plan</h1><p>{when}. Times are "
        f"predictions from a device's sheet.</p>{''.join(parts)}</html>\n"
    )


def _rows(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(tag: str, cells: Sequence[str]) -> str:
        return (
            "<tr>"
            + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells)
            + "</tr>"
        )

    return f"<table>{line('th', head)}{''.join(line('td', r) for r in rows)}</table>"


def _tables(one: Recorded) -> str:
    r = one.report
    parts = [
        _rows(
            ["a step", r.verdict],
            [
                ["predicted time", f"{r.step_us:,.1f} µs"],
                ["device works", f"{r.device_bound:.1%}"],
                ["device waits for launches", f"{r.launch_bound:.1%}"],
                ["device waits behind a sync", f"{r.sync_bound:.1%}"],
                ["launches", f"{r.launches:,.1f}"],
                ["peak memory", f"{r.peak_allocated / 2**20:,.1f} MiB"],
            ],
        ),
        _rows(
            ["what if", "step, µs", "throughput"],
            [[w.what, f"{w.step_us:,.1f}", f"{w.speedup:.2f}x"] for w in r.what_if],
        ),
    ]
    if why := graph_refused(r):
        parts.append(f"<p>{escape(why)}</p>")
    if r.blames:
        parts.append(
            _rows(
                ["line", "why", "times a step", "host, µs", "device idle, µs"],
                [
                    [
                        b.where,
                        b.reason,
                        f"{b.times:,.1f}",
                        f"{b.host_us:,.1f}",
                        f"{b.idle_us:,.1f}",
                    ]
                    for b in r.blames[:20]
                ],
            )
        )
    parts.append(
        _rows(
            ["operator", "calls a step", "device, µs", "host, µs"],
            [
                [o.name, f"{o.calls:.1f}", f"{o.device_us:,.1f}", f"{o.host_us:,.1f}"]
                for o in r.operators[:20]
            ],
        )
    )
    return "".join(parts)


def _timeline(one: Recorded) -> Any:
    from plotly.graph_objects import (  # type: ignore[import-untyped]
        Bar,
        Figure,
        Scatter,
    )

    run = one.run
    tasks = list(run.tasks)[-_MOST_BARS:]
    zero = tasks[0].submitted if tasks else 0.0
    figure = Figure()
    top = [row.name for row in one.report.operators[:_MOST_NAMES]]
    for name in [*top, "others"]:
        chosen = [
            t
            for t in tasks
            if t.runs and (t.name == name or (name == "others" and t.name not in top))
        ]
        figure.add_trace(
            Bar(
                orientation="h",
                name=name,
                base=[(t.started - zero) / 1e3 for t in chosen],
                x=[(t.ended - t.started) / 1e3 for t in chosen],
                y=[f"npu:{t.stream[0]} stream {t.stream[1]}" for t in chosen],
                customdata=[t.name for t in chosen],
                hovertemplate="%{customdata}: %{x:.2f} µs<extra></extra>",
                marker_line_width=0,
            )
        )
    waits = [w for w in run.waits if w.ended >= zero]
    figure.add_trace(
        Bar(
            orientation="h",
            name="host blocked",
            base=[(w.begun - zero) / 1e3 for w in waits],
            x=[(w.ended - w.begun) / 1e3 for w in waits],
            y=["host" for _ in waits],
            customdata=[f"{w.reason} at {w.where}" for w in waits],
            hovertemplate="%{customdata}: %{x:.2f} µs<extra></extra>",
            marker_color="#c33",
        )
    )
    figure.add_trace(
        Scatter(
            x=[(t.ended - zero) / 1e3 for t in tasks],
            y=[t.depth for t in tasks],
            name="queue depth",
            mode="lines",
            yaxis="y2",
            line={"shape": "hv"},
        )
    )
    figure.update_layout(
        barmode="overlay",
        height=520,
        xaxis={"title": "µs", "domain": [0, 1]},
        yaxis={"domain": [0.45, 1]},
        yaxis2={"title": "tasks queued", "domain": [0, 0.35], "anchor": "x"},
    )
    return figure
