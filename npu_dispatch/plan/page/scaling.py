"""A step's time against the number of ranks, as a picture and as rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from npu_dispatch.plan.analysis import RankTime, Report
from npu_dispatch.plan.texts import time_text

__all__ = ["picture", "rows"]

_WIDE, _HIGH = 640, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 14, 40
_COLOURS = 7  # of the palette


class Cell(NamedTuple):
    step: str
    exposed: str
    bound_by: str


def rows(reports: Sequence[Report]) -> list[tuple[str, list[Cell | None]]]:
    """Return a row for each number of ranks, a cell for each device with ranks."""
    shown = _shown(reports)
    found = [{rank.ranks: rank for rank in report.ranks} for report in shown]
    counts = sorted({count for ranks in found for count in ranks})
    return [
        (
            f"{count:,}",
            [_cell(ranks[count]) if count in ranks else None for ranks in found],
        )
        for count in counts
    ]


def _shown(reports: Sequence[Report]) -> list[Report]:
    return [report for report in reports if report.ranks]


def _cell(rank: RankTime) -> Cell:
    share = rank.exposed_us / rank.step_us if rank.step_us else 0.0
    exposed = f"{time_text(rank.exposed_us)} ({share:.0%})"
    return Cell(time_text(rank.step_us), exposed, rank.bound_by)


def picture(reports: Sequence[Report]) -> dict[str, Any]:
    """Return what is where: ranks on a logarithmic axis, times from 0 on.

    Of each device there is a line of the step and one of its communication.
    """
    ranks = sorted({rank.ranks for report in reports for rank in report.ranks})
    top = max(rank.step_us for report in reports for rank in report.ranks)
    step = _round_step(top / 4)
    most = step * math.ceil(top / step)
    decades = math.log(ranks[-1] / ranks[0]) or 1.0

    def x(count: int) -> float:
        share = math.log(count / ranks[0]) / decades
        return round(_LEFT + share * (_WIDE - _LEFT - _RIGHT), 1)

    def y(us: float) -> float:
        return round(_HIGH - _BOTTOM - us / most * (_HIGH - _TOP - _BOTTOM), 1)

    def points(of: Sequence[RankTime], exposed: bool) -> list[tuple[float, float]]:
        return [(x(r.ranks), y(r.exposed_us if exposed else r.step_us)) for r in of]

    shown = _shown(reports)
    colours = [f"--hue-{i % _COLOURS}" for i in range(len(shown))]
    return {
        "width": _WIDE,
        "height": _HIGH,
        "left": _LEFT,
        "right": _WIDE - _RIGHT,
        "bottom": _HIGH - _BOTTOM,
        "x_ticks": [(x(count), f"{count:,}") for count in _apart(ranks, x)],
        "y_ticks": [
            (y(i * step), time_text(i * step)) for i in range(round(most / step) + 1)
        ],
        "lines": [
            (colour, exposed, points(report.ranks, exposed))
            for report, colour in zip(shown, colours, strict=True)
            for exposed in (False, True)
        ],
        "legend": [
            (r.device, colour) for r, colour in zip(shown, colours, strict=True)
        ],
    }


def _round_step(about: float) -> float:
    """Return 1, 2 or 5 times a power of ten, at least `about`."""
    power = 10.0 ** math.floor(math.log10(about))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= about * (1 - 1e-9))


def _apart(ranks: Sequence[int], x: Callable[[int], float]) -> list[int]:
    """Leave out those whose text would lie on that of another."""
    kept: list[int] = []
    for count in ranks:
        if not kept or x(count) - x(kept[-1]) > 36:
            kept.append(count)
    return kept
