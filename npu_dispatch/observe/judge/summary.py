"""What a process's queues did and what held it up, as figures and as a table."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from npu_dispatch.observe.judge.steps import Steps
from npu_dispatch.observe.judge.verdict import Verdict, judge
from npu_dispatch.observe.segment import (
    SAMPLE_PERIOD,
    Histogram,
    OpCost,
    SiteTasks,
    SiteWaits,
    StreamStats,
)
from npu_dispatch.observe.segment.listing import Processes, ProcessView
from npu_dispatch.observe.segment.sites import short

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Figures", "Watch", "show"]

_MOST_LINES = 3
_LEAST_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Figures:
    seconds: float
    launches: int
    launches_per_s: float
    failed: int
    dropped: int
    streams: int
    depth_p50: float
    depth_p99: float
    depth_max: float
    latency_us_p50: float
    latency_us_p99: float
    blocked_ms: dict[str, float]
    peak_memory: dict[int, int]
    verdict: Verdict
    steps: int  # of the optimizer
    step_s: float | None  # from one step's end to the next one's, on the host
    step_device_s: float | None  # for which the busiest stream works
    waits: list[SiteWaits]  # the costliest lines
    tasks: list[SiteTasks]  # the lines that launch most; one task in SAMPLE_PERIOD

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        rows = {name: getattr(self, name) for name in ("waits", "tasks")}
        return {
            **asdict(self),
            "verdict": self.verdict._asdict(),
            **{name: [row._asdict() for row in found] for name, found in rows.items()},
        }


def _merged(streams: list[StreamStats], name: str) -> Histogram | None:
    histograms: list[Histogram] = [getattr(stream, name) for stream in streams]
    return reduce(Histogram.__add__, histograms) if histograms else None


class Watch:
    """This process's figures since its start, and the time since construction.

    Whoever calls `steps.stepped` after each step of an optimizer gets the time of a
    step, too.
    """

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._processes = Processes(pid=os.getpid())
        self.steps = Steps(self._view)

    def _view(self) -> ProcessView | None:
        views = self._processes.refresh()
        return views[0] if views else None

    def figures(self) -> Figures | None:
        """Return the figures, or None when this process publishes no statistics."""
        seconds = time.monotonic() - self._start
        with self._processes:
            view = self._view()
            reader = self._processes.reader(view) if view else None
            if view is None or reader is None:
                return None
            waits = [site for site in reader.waits_by_site() if site.reason != "exit"]
            tasks, ops = reader.tasks_by_site(), reader.ops()
        streams = [stream.stats for stream in view.streams]
        depth = _merged(streams, "depth_histogram")
        latency = _merged(streams, "latency_ns")
        launches = sum(stream.submitted for stream in streams)  # inline ones too
        blocked = {"full_queue": sum(stream.full_wait_ns for stream in streams) / 1e6}
        for device in view.devices:
            for reason, ns in device.wait_ns.items():
                blocked[reason] = blocked.get(reason, 0.0) + ns / 1e6
        verdict = self._judge(view, waits, ops)
        return Figures(
            seconds=seconds,
            launches=launches,
            launches_per_s=launches / seconds if seconds else 0.0,
            failed=sum(stream.failed for stream in streams),
            dropped=sum(stream.dropped for stream in streams),
            streams=len(streams),
            depth_p50=depth.percentile(0.50) if depth else 0.0,
            depth_p99=depth.percentile(0.99) if depth else 0.0,
            depth_max=depth.percentile(1.0) if depth else 0.0,
            latency_us_p50=latency.percentile(0.50) / 1e3 if latency else 0.0,
            latency_us_p99=latency.percentile(0.99) / 1e3 if latency else 0.0,
            blocked_ms=blocked,
            peak_memory={d.device: d.allocated_peak for d in view.devices},
            verdict=verdict,
            steps=self.steps.count,
            step_s=self.steps.host_s,
            step_device_s=self.steps.device_s,
            waits=waits[:_MOST_LINES],
            tasks=tasks[:_MOST_LINES],
        )

    def _judge(
        self, end: ProcessView, waits: Sequence[SiteWaits], ops: Sequence[OpCost]
    ) -> Verdict:
        """Judge the steps, or the whole run where there are few or it has failed."""
        before, now = self.steps.first, self.steps.last
        end = end._replace(quiet_since=None)  # the program has ended
        verdict = judge(None, end, lines=waits, ops=ops)
        if verdict.kind in ("failed", "hung", "idle") or before is None or now is None:
            return verdict
        return judge(before, now, lines=waits, ops=ops)


def show(figures: Figures | None) -> None:
    """Print the table, the verdict and what to try next to stderr."""
    from rich.console import Console

    console = Console(stderr=True, markup=False, emoji=False)
    if figures is None:
        console.print(
            "npu: this process published no statistics: it has not used npu, or has "
            "no room for them (npu-dispatch doctor)"
        )
        return
    console.print(_table(figures))
    for line in _verdict_lines(figures):
        console.print(line, highlight=False, soft_wrap=True)


def _table(figures: Figures) -> Table:
    from rich.table import Table

    table = Table(title="npu", show_header=False, title_style="bold")
    table.add_column(style="cyan")
    table.add_column(justify="right")
    table.add_row("launches", f"{figures.launches:,}")
    table.add_row("launches/s", f"{figures.launches_per_s:,.0f}")
    if figures.failed:
        table.add_row("failed", f"{figures.failed} (then {figures.dropped} dropped)")
    depths = (figures.depth_p50, figures.depth_p99, figures.depth_max)
    table.add_row(
        "queue depth p50 / p99 / max", " / ".join(f"{depth:,.0f}" for depth in depths)
    )
    table.add_row(
        "enqueue to retire p50 / p99",
        f"{figures.latency_us_p50:,.1f} / {figures.latency_us_p99:,.1f} µs",
    )
    total = sum(figures.blocked_ms.values())
    table.add_row("host blocked", f"{total:,.1f} ms of {figures.seconds * 1e3:,.0f} ms")
    for reason, ms in sorted(figures.blocked_ms.items(), key=lambda item: -item[1]):
        if ms >= 0.05:
            table.add_row(f"  {reason.replace('_', ' ')}", f"{ms:,.1f} ms")
    for device, peak in figures.peak_memory.items():
        table.add_row(f"peak memory npu:{device}", f"{peak / 2**20:,.1f} MiB")
    return table


def _time(seconds: float) -> str:
    return f"{seconds:,.2f} s" if seconds >= 1 else f"{seconds * 1e3:,.2f} ms"


def _each(count: int, steps: int) -> str:
    return f", {count / steps:,.0f} a step" if 2 * count >= steps > 0 else ""


def _verdict_lines(figures: Figures) -> list[str]:
    lines = [figures.verdict.text]
    if figures.step_s is not None:
        line = f"step     {_time(figures.step_s)} on the host"
        if figures.step_device_s is not None:
            line += f", {_time(figures.step_device_s)} of work on the device"
        lines.append(f"{line} ({figures.steps:,} steps)")
    steps = figures.steps if figures.step_s is not None else 0
    for site in figures.waits:
        if site.wait_ns / 1e9 < _LEAST_SHARE * figures.seconds:
            continue
        lines.append(
            f"waits    {_time(site.wait_ns / 1e9)} in {site.waits:,} waits for "
            f"{site.reason.replace('_', ' ')}{_each(site.waits, steps)}, "
            f"at {short(site.at)}"
        )
    for task in figures.tasks:
        launches = task.tasks * SAMPLE_PERIOD
        share = min(1.0, launches / max(figures.launches, 1))
        if share >= _LEAST_SHARE:
            lines.append(
                f"launches {share:.0%} of all{_each(launches, steps)}, "
                f"at {short(task.at)}"
            )
    if figures.verdict.action:
        lines.append(f"try      {figures.verdict.action}")
    return lines
