"""What the service says about itself: requests, and the lag of its loop."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from npu_dispatch.observe.segment.system import unix_ns
from npu_dispatch.observe.serve.families import LATENCY_BOUNDS, Families, Labels

ROUTE = "npu_dispatch.route"  # in a scope: the route's template
_UNKNOWN = "other"  # for paths of no route, which would be labels without bound
_METHODS = frozenset({"GET", "HEAD", "POST"})
_OF_REQUESTS = ("route", "method", "status")


class Telemetry:
    """Figures of one service, which any thread may note and read."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.lag = self._histogram(
            "event_loop_lag", "How late the service's loop runs what is due."
        )
        self.last_reading = time.monotonic()  # of the counters
        self.failed_readings = 0
        self._requests = Counter(
            "npu_dispatch_http_requests",
            "Requests answered.",
            _OF_REQUESTS,
            registry=self._registry,
        )
        self._took = self._histogram(
            "http_request_duration",
            "From a request to the beginning of its answer.",
            _OF_REQUESTS,
        )

    def _histogram(
        self, name: str, text: str, labels: tuple[str, ...] = ()
    ) -> Histogram:
        return Histogram(
            f"npu_dispatch_{name}",
            text,
            labels,
            unit="seconds",
            registry=self._registry,
            buckets=[bound / 1e9 for bound in LATENCY_BOUNDS],
        )

    def note(self, route: str, method: str, status: int, seconds: float) -> None:
        method = method if method in _METHODS else _UNKNOWN
        self._requests.labels(route, method, status).inc()
        self._took.labels(route, method, status).observe(seconds)

    def families(self) -> list[Metric]:
        out = Families()
        out.gauge(
            "last_reading_timestamp_seconds",
            "When the service last read the counters of all processes.",
            Labels(),
            unix_ns(int(self.last_reading * 1e9)) / 1e9,
        )
        text = "Readings of the counters that failed."
        out.counter("readings_failed", text, Labels(), self.failed_readings, zero=True)
        found = [*out.all(), *self._registry.collect()]
        for metric in found:  # without the moments at which each series began
            kept = [s for s in metric.samples if not s.name.endswith("_created")]
            metric.samples = kept
        return found


class Measured:
    """An ASGI application whose requests are counted."""

    def __init__(self, app: ASGIApp, telemetry: Telemetry) -> None:
        self._app, self._telemetry = app, telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._telemetry.note(
                    scope.get(ROUTE, _UNKNOWN),
                    scope["method"],
                    message["status"],
                    time.perf_counter() - start,
                )
            await send(message)

        await self._app(scope, receive, counted)
