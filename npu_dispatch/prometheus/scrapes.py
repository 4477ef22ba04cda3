"""Answers scrapes with the metrics of the processes that use the device."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from weakref import WeakKeyDictionary

from npu_dispatch.processes import Processes, ProcessView
from npu_dispatch.prometheus.families import Exemplar, Family, Labels, families
from npu_dispatch.prometheus.render import (
    content_type,
    negotiate,
    shows_exemplars,
)
from npu_dispatch.prometheus.top_ops import TopOps
from npu_dispatch.stats import OpCost, StatsReader

__all__ = ["KEPT_SECONDS", "Scrapes"]

KEPT_SECONDS = 1.0  # of answers over HTTP; scrapers come less often


class Scrapes:
    """Answers scrapes, on any thread; `ranked` is that of families().

    With `top_ops` there are metrics by operator: for so many of the costliest, and
    for all others together.
    """

    def __init__(self, processes: Processes, *, ranked: bool, top_ops: int = 0) -> None:
        self._processes = processes
        self._ranked, self._top_ops = ranked, top_ops
        self._lock = threading.Lock()  # guards the processes, and what follows
        self._answering = threading.Lock()  # guards these
        self._answers: dict[str, tuple[float, tuple[bytes, str]]] = {}
        # By the open segment: a program that replaces itself counts from zero.
        self._tops: WeakKeyDictionary[StatsReader, TopOps] = WeakKeyDictionary()

    def tick(self) -> None:
        """Look at the counters; to be called about once a second."""
        with self._lock:
            self._processes.refresh()

    @contextlib.contextmanager
    def processes(self) -> Iterator[Processes]:
        """Keep the list of processes as it is, for a short reading of more of them."""
        with self._lock:
            yield self._processes

    def _exemplars(
        self, view: ProcessView, device: int, stream: int, name: str
    ) -> Sequence[Exemplar]:
        reader = self._processes.reader(view)
        found = reader.exemplars(device, stream, name) if reader else ()
        # SegmentInfo.unix_time(), of many.
        zero = view.info.realtime_ns - view.info.monotonic_ns
        return [Exemplar(task, ns, (zero + at) / 1e9) for task, ns, at in found]

    def _ops(self, view: ProcessView) -> Sequence[OpCost]:
        reader = self._processes.reader(view)
        if not reader:
            return ()
        top = self._tops.get(reader)
        if top is None:
            top = self._tops[reader] = TopOps(self._top_ops)
        return top.rows(reader.ops())

    def families(self, *, exemplars: bool = False) -> list[Family]:
        start = time.perf_counter()
        with self._lock:
            views = self._processes.refresh()
            stale = self._processes.unreadable
            found = families(
                views,
                ranked=self._ranked,
                exemplars=self._exemplars if exemplars else None,
                ops=self._ops if self._top_ops else None,
            )
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
            family.add(Labels(), value)
            found.append(family)
        return found

    def answer(
        self,
        accept: str,
        more: Callable[[], Sequence[Family]] = tuple,
        *,
        kept: float = 0.0,
    ) -> tuple[bytes, str]:
        """Return body and content type for an Accept header, with more() added.

        An answer is given again for `kept` seconds, so that a client in a loop takes
        no more of this machine than a scraper.
        """
        kind = content_type(accept)
        with self._answering:
            before = self._answers.get(kind)
            if before is None or time.monotonic() - before[0] >= kept:
                at = time.monotonic()
                found = self.families(exemplars=shows_exemplars(accept))
                before = at, negotiate(accept, [*found, *more()])
                self._answers[kind] = before
            return before[1]
