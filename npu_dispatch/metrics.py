"""Prometheus metrics of the processes that use the device.

    from npu_dispatch.metrics import start_exporter
    exporter = start_exporter(9400)      # in a training script

The exporter is a process of its own that reads this one's statistics segment,
so a scrape takes none of the trainer's time and no GIL. `npu-dispatch serve`
does the same for all processes of a machine. docs/observability.md lists the
metrics. Imports neither torch nor the extension.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from prometheus_client import Metric
from prometheus_client.registry import Collector

from npu_dispatch.observe.segment.listing import Processes
from npu_dispatch.observe.serve.render import to_metrics
from npu_dispatch.observe.serve.scrapes import KEPT_SECONDS, Scrapes
from npu_dispatch.observe.serve.start_exporter import Exporter, start_exporter

__all__ = ["Exporter", "NpuCollector", "asgi_app", "start_exporter"]

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]


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
        return to_metrics(self._scrapes.families())


def asgi_app(
    *, pid: int | None = None
) -> Callable[[MutableMapping[str, Any], _Receive, _Send], Awaitable[None]]:
    """Return an ASGI app that answers every GET with the metrics.

    Mount it in a service that you have: `app.mount("/metrics", asgi_app())`. It shows
    all processes of this user, or the one `pid`. Methods other than GET get status 405.
    An answer is given again for a second. Your service says who may ask.
    """
    scrapes = Scrapes(Processes(pid=pid), ranked=pid is None)

    async def app(
        scope: MutableMapping[str, Any], receive: _Receive, send: _Send
    ) -> None:
        if scope["type"] != "http":
            raise ValueError(f"metrics are served over http, not {scope['type']}")
        status, body, kind = 405, b"only GET is answered here\n", "text/plain"
        if scope["method"] in ("GET", "HEAD"):
            accept = dict(scope["headers"]).get(b"accept", b"").decode("latin-1")
            status = 200
            # In a thread, since many processes have a megabyte of metrics.
            body, kind = await asyncio.to_thread(
                scrapes.answer, accept, kept=KEPT_SECONDS
            )
        headers = [
            (b"content-type", kind.encode()),
            (b"content-length", str(len(body)).encode()),
        ]
        await send(
            {"type": "http.response.start", "status": status, "headers": headers}
        )
        if scope["method"] == "HEAD":
            body = b""
        await send({"type": "http.response.body", "body": body})

    return app
