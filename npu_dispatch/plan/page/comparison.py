"""Devices beside one another: a row for each figure, a column for each device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from npu_dispatch.plan.advice import fastest
from npu_dispatch.plan.analysis import Report
from npu_dispatch.plan.show import remarks
from npu_dispatch.plan.texts import factor_text, memory_text, time_text

__all__ = ["Column", "columns", "parts", "rows"]


class Column(NamedTuple):
    device: str
    best: bool


class Cell(NamedTuple):
    text: str
    bad: bool = False
    hint: str = ""


def columns(reports: Sequence[Report]) -> list[Column]:
    best = fastest(reports) if len(reports) > 1 else None
    return [Column(report.device, report is best) for report in reports]


def parts(report: Report) -> list[tuple[str, float, str]]:
    """Return the parts of a step, with their colours."""
    of_ranks = ("waits for other ranks", report.network_bound, "--host-bound")
    return [
        ("device works", report.device_bound, "--device-bound"),
        ("waits for launches", report.launch_bound, "--launch-bound"),
        ("waits behind a sync", report.sync_bound, "--blocked"),
        *([of_ranks] if report.ranks else []),
    ]


def rows(reports: Sequence[Report]) -> list[tuple[str, list[Cell]]]:
    """Return what follows the steps' parts."""
    figures: dict[str, Callable[[Report], Cell]] = {
        "step in a graph": _graph,
        "peak memory": _memory,
        "launches a step": lambda r: Cell(f"{r.launches:,.0f}"),
        "queue depth, median / most": lambda r: Cell(
            f"{r.depth_median:,.0f} / {r.depth_max:,}"
        ),
        "kernel times are": _origin,
        "steps seen": lambda r: Cell(str(r.steps)),
        "a step is": lambda r: Cell(r.step_is),
    }
    return [(name, [figure(r) for r in reports]) for name, figure in figures.items()]


def _graph(report: Report) -> Cell:
    graph = report.graph
    if graph is None:
        return Cell("not tried")
    if graph.step_us is None:
        return Cell("cannot be captured", hint=remarks(report)[-1])
    faster = factor_text(report.step_us / graph.step_us)
    return Cell(f"{time_text(graph.step_us)} ({faster})")


def _memory(report: Report) -> Cell:
    text = memory_text(report.peak_allocated, report.memory, report.too_much)
    return Cell(text, bad=report.too_much > 0)


def _origin(report: Report) -> Cell:
    if not report.measured:
        return Cell("modelled")
    return Cell(f"{report.measured:.0%} measured, the others modelled")
