"""Prometheus metrics of the processes that use the device.

    from npu_dispatch.metrics import start_exporter
    exporter = start_exporter(9400)      # in a training script

The exporter is a process of its own that reads this one's statistics segment,
so a scrape takes none of the trainer's time and no GIL. `npu-dispatch serve`
does the same for all processes of a machine. docs/observability.md lists the
metrics. Imports neither torch nor the extension.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from prometheus_client import Metric
from prometheus_client.registry import Collector

from npu_dispatch.metrics.exporter import Exporter, start_exporter
from npu_dispatch.metrics.families import Family, families
from npu_dispatch.metrics.render import negotiate, to_metrics
from npu_dispatch.processes import Processes

__all__ = ["Exporter", "NpuCollector", "Scrapes", "start_exporter"]


class Scrapes:
    """Answers scrapes. Any thread; `ranked` as in families()."""

    def __init__(self, processes: Processes, *, ranked: bool) -> None:
        self._processes = processes
        self._ranked = ranked
        self._lock = threading.Lock()  # guards the processes

    def tick(self) -> None:
        """Look at the counters. About once a second."""
        with self._lock:
            self._processes.refresh()

    def families(self) -> list[Family]:
        start = time.perf_counter()
        with self._lock:
            views = self._processes.refresh()
            stale = self._processes.unreadable
        found = families(views, ranked=self._ranked)
        gauges = (
            ("segments", "Statistics segments of living processes.", len(views)),
            ("segments_stale", "Segments that could not be read.", stale),
            (
                "scrape_duration_seconds",
                "Time to read the segments for this scrape.",
                time.perf_counter() - start,
            ),
        )
        for name, text, value in gauges:
            family = Family(f"npu_dispatch_exporter_{name}", "gauge", text)
            family.add({}, value)
            found.append(family)
        return found

    def answer(self, accept: str) -> tuple[bytes, str]:
        """Return body and content type for an Accept header."""
        return negotiate(accept, self.families())


class NpuCollector(Collector):
    """For a registry of your own: `REGISTRY.register(NpuCollector())`.

    Of all local processes, with the label `local_rank`, or of one `pid`.
    Rendering then happens wherever that registry is scraped.
    """

    def __init__(self, *, pid: int | None = None) -> None:
        self._scrapes = Scrapes(Processes(pid=pid), ranked=pid is None)

    def describe(self) -> Iterable[Metric]:
        return ()  # registering must not collect

    def collect(self) -> Iterable[Metric]:
        return to_metrics(self._scrapes.families())
