"""What the service says about itself: requests, and the lag of its loop."""

from __future__ import annotations

import time
from collections import defaultdict

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from npu_dispatch.observe.segment import Histogram
from npu_dispatch.observe.segment.clock import unix_ns
from npu_dispatch.observe.segment.layout import TIME_BUCKETS
from npu_dispatch.observe.serve.families import LATENCY_BOUNDS, Family, Labels, Row

__all__ = ["ROUTE", "Measured", "Telemetry", "TimeHistogram"]

ROUTE = "npu_dispatch.route"  # in a scope: the route's template
_UNKNOWN = "other"  # for paths of no route, which would be labels without bound
_METHODS = frozenset({"GET", "HEAD", "POST"})


class TimeHistogram:
    """Counts nanoseconds in the engine's buckets, for use by one thread."""

    def __init__(self) -> None:
        self._buckets = [0] * TIME_BUCKETS
        self._sum = 0

    def add(self, ns: int) -> None:
        e = ns.bit_length() - 1
        at = ns if ns < 4 else 4 * (e - 1) + (ns >> (e - 2) & 3)
        self._buckets[min(at, TIME_BUCKETS - 1)] += 1
        self._sum += ns

    def value(self) -> Histogram:
        buckets = tuple(self._buckets)
        return Histogram(sum(buckets), self._sum, buckets, 4)


class Telemetry:
    """Owned by the loop's thread; families() may be called by another."""

    def __init__(self) -> None:
        self.lag = TimeHistogram()
        self.last_reading = time.monotonic()  # of the counters
        self.failed_readings = 0
        self._requests: dict[tuple[str, str, str], TimeHistogram] = defaultdict(
            TimeHistogram
        )

    def note(self, route: str, method: str, status: int, ns: int) -> None:
        method = method if method in _METHODS else _UNKNOWN
        self._requests[route, method, str(status)].add(ns)

    def families(self) -> list[Family]:
        lag = Family(
            "npu_dispatch_event_loop_lag_seconds",
            "histogram",
            "How late the service's loop runs what is due.",
            LATENCY_BOUNDS,
        )
        lag.rows.append(Row(Labels(), histogram=self.lag.value()))
        reading = Family(
            "npu_dispatch_last_reading_timestamp_seconds",
            "gauge",
            "When the service last read the counters of all processes.",
        )
        reading.add(Labels(), unix_ns(int(self.last_reading * 1e9)) / 1e9)
        failed = Family(
            "npu_dispatch_readings_failed",
            "counter",
            "Readings of the counters that failed.",
        )
        failed.add(Labels(), self.failed_readings)
        total = Family("npu_dispatch_http_requests", "counter", "Requests answered.")
        took = Family(
            "npu_dispatch_http_request_duration_seconds",
            "histogram",
            "From a request to the beginning of its answer.",
            LATENCY_BOUNDS,
        )
        for (route, method, status), histogram in list(self._requests.items()):
            labels = Labels(route=route, method=method, status=status)
            value = histogram.value()
            total.add(labels, value.count)
            took.rows.append(Row(labels, histogram=value))
        return [lag, reading, failed, total, took]


class Measured:
    """An ASGI application whose requests are counted."""

    def __init__(self, app: ASGIApp, telemetry: Telemetry) -> None:
        self._app, self._telemetry = app, telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter_ns()

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._telemetry.note(
                    scope.get(ROUTE, _UNKNOWN),
                    scope["method"],
                    message["status"],
                    time.perf_counter_ns() - start,
                )
            await send(message)

        await self._app(scope, receive, counted)
