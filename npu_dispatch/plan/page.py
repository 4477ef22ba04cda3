"""The report as one HTML file, with the timeline of the last steps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from npu_dispatch.drawing import page
from npu_dispatch.plan import timeline
from npu_dispatch.plan.show import remarks, time_text
from npu_dispatch.plan.study import Recorded

__all__ = ["write"]

_MOST_ROWS = 20


def write(recorded: Sequence[Recorded], path: Path) -> None:
    """Write the page as one file, which loads nothing from elsewhere."""
    path.write_text(
        page(
            "plan/page.html",
            "npu-dispatch plan",
            style=timeline.STYLE,
            script=timeline.SCRIPT,
            when=time.strftime("%Y-%m-%d %H:%M"),
            devices=[_device(one) for one in recorded],
        )
    )


def _device(one: Recorded) -> dict[str, Any]:
    r = one.report
    return {
        "name": r.device,
        "cards": {
            "predicted time": time_text(r.step_us),
            "a step is": r.step_is,
            "verdict": r.verdict,
            "launches": f"{r.launches:,.1f}",
            "queued, median / most": f"{r.depth_median:,.0f} / {r.depth_max:,}",
            "peak memory": f"{r.peak_allocated / 2**20:,.1f} MiB",
        },
        "parts": [
            ("device works", r.device_bound, "--device-bound"),
            ("device waits for launches", r.launch_bound, "--launch-bound"),
            ("device waits behind a sync", r.sync_bound, "--blocked"),
        ],
        "changes": [
            (change.what, time_text(change.step_us), f"{change.speedup:.2f}x")
            for change in r.what_if
        ],
        "remarks": remarks(r),
        "blames": [
            (
                blame.where,
                blame.reason,
                f"{blame.times:,.1f}",
                time_text(blame.host_us),
                time_text(blame.idle_us),
            )
            for blame in r.blames[:_MOST_ROWS]
        ],
        "operators": [
            (
                operator.name,
                f"{operator.calls:.1f}",
                time_text(operator.device_us),
                time_text(operator.host_us),
            )
            for operator in r.operators[:_MOST_ROWS]
        ],
        "timeline": timeline.places(one),
    }
