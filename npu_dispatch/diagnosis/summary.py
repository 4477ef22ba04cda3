"""What a process's queues did, as figures and as a table."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from functools import reduce
from typing import Any

from npu_dispatch.stats import (
    Histogram,
    StatsError,
    StatsReader,
    StreamStats,
    segment_file,
)

__all__ = ["Figures", "Watch", "show"]


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

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)


def _merged(streams: list[StreamStats], name: str) -> Histogram | None:
    histograms: list[Histogram] = [getattr(stream, name) for stream in streams]
    return reduce(Histogram.__add__, histograms) if histograms else None


class Watch:
    """This process's figures since its start, and the time since construction."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def figures(self) -> Figures | None:
        """Return the figures, or None when this process publishes no statistics."""
        seconds = time.monotonic() - self._start
        try:
            with StatsReader(segment_file()) as reader:
                streams, devices = reader.streams(), reader.devices()
        except (OSError, StatsError):
            return None
        depth = _merged(streams, "depth_histogram")
        latency = _merged(streams, "latency_ns")
        launches = sum(stream.submitted for stream in streams)  # inline ones too
        blocked = {"full_queue": sum(stream.full_wait_ns for stream in streams) / 1e6}
        for device in devices:
            for reason, ns in device.wait_ns.items():
                blocked[reason] = blocked.get(reason, 0.0) + ns / 1e6
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
            peak_memory={d.device: d.allocated_peak for d in devices},
        )


def show(figures: Figures | None) -> None:
    """Print the table to stderr."""
    from rich.console import Console
    from rich.table import Table

    console = Console(stderr=True)
    if figures is None:
        console.print("npu: this process published no statistics")
        return
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
    console.print(table)
