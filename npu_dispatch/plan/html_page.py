"""The reports as one HTML file."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from npu_dispatch.drawing import page
from npu_dispatch.plan.advice import advice, choice, time_text
from npu_dispatch.plan.report import Report
from npu_dispatch.plan.show import comparison, details, remarks

__all__ = ["write"]

_STYLE = (Path(__file__).parent / "page.css").read_text()
# Of the picture of ranks.
_WIDE, _HIGH = 640, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, _WIDE - 20, 14, _HIGH - 40
_COLOURS = 7  # of the palette


def write(reports: Sequence[Report], path: Path) -> None:
    """Write the page as one file, which loads nothing from elsewhere."""
    script = Path(reports[0].script).name
    with_ranks = [report for report in reports if report.ranks]
    path.write_text(
        page(
            "plan/page.html",
            f"{script}: plan" if script else "npu-dispatch plan",
            style=_STYLE,
            name=script,
            whole_name=reports[0].script,
            when=time.strftime("%Y-%m-%d %H:%M"),
            choice=choice(reports),
            comparison=comparison(reports),
            remarks=remarks(reports[0]),
            scaling=_scaling(with_ranks) if with_ranks else None,
            devices=[
                {
                    "report": report,
                    "advice": [one.text for one in advice(report)],
                    "tables": list(details(report)),
                }
                for report in reports
            ],
        )
    )


def _scaling(reports: Sequence[Report]) -> dict[str, Any]:
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
        return round(_LEFT + share * (_RIGHT - _LEFT), 1)

    def y(us: float) -> float:
        return round(_BOTTOM - us / most * (_BOTTOM - _TOP), 1)

    lines, legend = [], []
    for i, report in enumerate(reports):
        colour = f"--hue-{i % _COLOURS}"
        legend.append((report.device, colour))
        steps = [(x(rank.ranks), y(rank.step_us)) for rank in report.ranks]
        exposed = [(x(rank.ranks), y(rank.exposed_us)) for rank in report.ranks]
        lines += [(colour, "", steps), (colour, "exposed", exposed)]
    told: list[tuple[float, str]] = []
    for count in ranks:  # whose text does not lie on that of another
        if not told or x(count) - told[-1][0] > 36:
            told.append((x(count), f"{count:,}"))
    return {
        "width": _WIDE,
        "height": _HIGH,
        "left": _LEFT,
        "right": _RIGHT,
        "bottom": _BOTTOM,
        "ranks": told,
        "times": [
            (y(i * step), time_text(i * step)) for i in range(round(most / step) + 1)
        ],
        "lines": lines,
        "legend": legend,
    }


def _round_step(about: float) -> float:
    """Return 1, 2 or 5 times a power of ten, at least `about`."""
    power = 10.0 ** math.floor(math.log10(about))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= about * (1 - 1e-9))
