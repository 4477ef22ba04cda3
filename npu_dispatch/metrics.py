"""Prometheus metrics of the processes that use the device.

    from npu_dispatch.metrics import start_exporter
    exporter = start_exporter(9400)      # in a training script

The exporter is a process of its own that reads this one's statistics segment,
so a scrape takes none of the trainer's time and no GIL. `npu-dispatch serve`
does the same for all processes of a machine. docs/metrics.md lists the
metrics. Imports neither torch nor the extension.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client import Metric
from prometheus_client.registry import Collector

from npu_dispatch.observe.segment.listing import Processes
from npu_dispatch.observe.serve.scrapes import Scrapes
from npu_dispatch.observe.serve.start_exporter import Exporter, start_exporter

if TYPE_CHECKING:
    from starlette.types import ASGIApp

__all__ = ["Exporter", "NpuCollector", "asgi_app", "start_exporter"]


class NpuCollector(Collector):
    """The collector for a registry of your own: `REGISTRY.register(NpuCollector())`.

    It collects from all processes of this user, with the label `process`, or from the
    one `pid`. The metrics are rendered wherever that registry is scraped. A registry
    takes one collector.
    """

    def __init__(self, *, pid: int | None = None) -> None:
        self._scrapes = Scrapes(Processes(pid=pid), ranked=pid is None)

    def describe(self) -> Iterable[Metric]:
        # Registering must not collect. This name stands for all: a registry refuses a
        # second collector, which would repeat each metric.
        return (Metric("npu_dispatch_exporter_segments", "", "gauge"),)

    def collect(self) -> Iterable[Metric]:
        return self._scrapes.families()


def asgi_app(*, pid: int | None = None) -> ASGIApp:
    """Return an ASGI app that answers every GET with the metrics.

    Mount it in a service that you have: `app.mount("/metrics", asgi_app())`. It shows
    all processes of this user, or the one `pid`; `?name[]=` chooses series, and large
    answers are compressed for clients that can read it. Methods other than GET and
    HEAD get status 405. An answer is given again for a second. Your service says who
    may ask.
    """
    # A collector in a registry of your own needs none of it.
    from starlette.routing import Route, Router

    from npu_dispatch.observe.serve.compression import Compressed

    scrapes = Scrapes(Processes(pid=pid), ranked=pid is None)
    return Compressed(
        Router([Route("/{any:path}", scrapes.response)], redirect_slashes=False)
    )
