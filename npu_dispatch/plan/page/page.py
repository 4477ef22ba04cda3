"""The reports as one HTML file."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from npu_dispatch.drawing import page
from npu_dispatch.plan.advice import advice, choice
from npu_dispatch.plan.analysis import Operator, Report
from npu_dispatch.plan.page import comparison, scaling
from npu_dispatch.plan.show import remarks
from npu_dispatch.plan.texts import factor_text, time_text

__all__ = ["write"]

_MOST_ROWS = 20
_STYLE = (Path(__file__).parent / "page.css").read_text()


def write(reports: Sequence[Report], path: Path) -> None:
    """Write the page as one file, which loads nothing from elsewhere."""
    script = Path(reports[0].script).name
    path.write_text(
        page(
            "plan/page/page.html",
            f"{script}: plan" if script else "npu-dispatch plan",
            style=_STYLE + _tabs(len(reports)),
            name=script,
            whole_name=reports[0].script,
            when=time.strftime("%Y-%m-%d %H:%M"),
            choice=choice(reports),
            columns=comparison.columns(reports),
            verdicts=[
                (
                    time_text(r.step_us, r.least_us, r.most_us),
                    r.verdict,
                    comparison.parts(r),
                )
                for r in reports
            ],
            figures=comparison.rows(reports),
            ranks=scaling.rows(reports),
            scaling=scaling.picture(reports) if any(r.ranks for r in reports) else None,
            devices=[_device(report) for report in reports],
        )
    )


def _folder(lines: Sequence[str]) -> str:
    """Return the folder that all lines have in common, for it says little."""
    known = [line.partition(" in ")[0] for line in lines if line != "?"]
    parts = zip(*(line.split("/")[:-1] for line in known), strict=False)
    same = takewhile(lambda part: len(set(part)) == 1, parts)
    return "".join(f"{part[0]}/" for part in same)


def _tabs(devices: int) -> str:
    """Return the rules by which only what is of the chosen device is seen."""
    shown = (f":has(#device-{i}:checked) .of-{i}" for i in range(devices))
    return f"{','.join(shown)}{{display:block}}\n"


def _source(operator: Operator) -> str:
    if operator.measured in (0, 1):
        return "measured" if operator.measured else "modelled"
    return f"{operator.measured:.0%} measured"


def _device(r: Report) -> dict[str, Any]:
    # A mark on each of them would tell nothing.
    marks = r.measured > 0
    folder = _folder([blame.where for blame in r.blames[:_MOST_ROWS]])
    return {
        "name": r.device,
        "advice": [one.text for one in advice(r)],
        "changes": [
            (change.what, time_text(change.step_us), factor_text(change.speedup))
            for change in r.what_if
        ],
        "remarks": remarks(r),
        "folder": folder,
        "blames": [
            (
                blame.where.removeprefix(folder),
                blame.reason,
                f"{blame.times:,.1f}",
                time_text(blame.host_us),
                time_text(blame.idle_us),
            )
            for blame in r.blames[:_MOST_ROWS]
        ],
        "operator_head": ["operator", "calls a step", "device", "host"]
        + ["kernel time"] * marks,
        "operators": [
            (
                operator.name,
                f"{operator.calls:.1f}",
                time_text(operator.device_us),
                time_text(operator.host_us),
                *([_source(operator)] * marks),
            )
            for operator in r.operators[:_MOST_ROWS]
        ],
    }
