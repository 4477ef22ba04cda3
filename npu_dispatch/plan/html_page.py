"""The reports as one HTML file."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from npu_dispatch.drawing import page
from npu_dispatch.plan.advice import advice, choice
from npu_dispatch.plan.report import Report
from npu_dispatch.plan.show import comparison, details, remarks

__all__ = ["write"]

_STYLE = (Path(__file__).parent / "page.css").read_text()


def write(reports: Sequence[Report], path: Path) -> None:
    """Write the page as one file, which loads nothing from elsewhere."""
    script = Path(reports[0].script).name
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
            reports=reports,
            advice=advice,
            details=details,
        )
    )
