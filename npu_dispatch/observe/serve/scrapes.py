"""Answers scrapes with the metrics of the processes that use the device."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import npu_dispatch
from npu_dispatch.observe.judge.verdict import HANG_SECONDS, judge
from npu_dispatch.observe.segment import LAYOUT_VERSION, OpCost, StatsReader
from npu_dispatch.observe.segment.clock import unix_offset_ns
from npu_dispatch.observe.segment.collectives import CollectiveTotal, read_totals
from npu_dispatch.observe.segment.listing import Processes, ProcessView
from npu_dispatch.observe.serve.families import Exemplar, Families, Family, Labels
from npu_dispatch.observe.serve.options import KEPT_SECONDS
from npu_dispatch.observe.serve.process_metrics import add_process
from npu_dispatch.observe.serve.render import format_for
from npu_dispatch.observe.serve.top_ops import TopOps
from npu_dispatch.versions import TORCH_VERSION

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["Scrapes"]

# A verdict is about at least so long, and readings of so many seconds are kept.
_SPAN_SECONDS = 5.0


class _OfReader:
    """What is remembered of a process from one reading to the next."""

    def __init__(self, top_ops: int) -> None:
        self.top = TopOps(top_ops)
        self.past: deque[ProcessView] = deque()

    def note(self, view: ProcessView) -> None:
        self.past.append(view)
        while len(self.past) > 1 and view.tick - self.past[1].tick >= _SPAN_SECONDS:
            self.past.popleft()


class Scrapes:
    """Answers scrapes, on any thread; `ranked` and `per_stream` as add_process().

    With `top_ops` there are metrics by operator: for so many of the costliest, and
    for all others together.
    """

    def __init__(
        self,
        processes: Processes,
        *,
        ranked: bool,
        top_ops: int = 0,
        per_stream: bool = False,
        hang_seconds: float = HANG_SECONDS,
    ) -> None:
        self._processes = processes
        self._ranked, self._top_ops, self._per_stream = ranked, top_ops, per_stream
        self._hang_seconds = hang_seconds
        self._lock = threading.Lock()  # guards the processes, and what follows
        self._answering = threading.Lock()  # guards these
        # By Format.text_kind: the moment and the text.
        self._answers: dict[tuple[bool, str], tuple[float, bytes]] = {}
        # By the open segment: a program that replaces itself counts from zero.
        self._known: WeakKeyDictionary[StatsReader, _OfReader] = WeakKeyDictionary()
        self._shows_exemplars = False

    def tick(self) -> None:
        """Look at the counters; to be called about once a second."""
        with self.refreshed():
            pass

    @contextlib.contextmanager
    def processes(self) -> Iterator[Processes]:
        """Keep the list of processes as it is, for a short reading of more of them."""
        with self._lock:
            yield self._processes

    @contextlib.contextmanager
    def refreshed(self) -> Iterator[Processes]:
        """Read everything again, and then as processes()."""
        with self.processes() as processes:
            for view in processes.refresh():
                if reader := processes.reader(view):
                    self._of(reader).note(view)
            yield processes

    def _of(self, reader: StatsReader) -> _OfReader:
        found = self._known.get(reader)
        if found is None:
            found = self._known[reader] = _OfReader(self._top_ops)
        return found

    # These four are process_metrics.More.
    def verdict(self, view: ProcessView) -> str:
        reader = self._processes.reader(view)
        past = list(self._of(reader).past) if reader else []
        before = past[0] if len(past) > 1 else None
        return judge(before, view, hang_seconds=self._hang_seconds).kind

    def ops(self, view: ProcessView) -> Sequence[OpCost]:
        reader = self._processes.reader(view)
        if not reader or not self._top_ops:
            return ()
        return self._of(reader).top.rows(reader.ops())

    def collectives(self, view: ProcessView) -> Sequence[CollectiveTotal]:
        reader = self._processes.reader(view)
        return read_totals(*reader.behind()) if reader else ()

    def exemplars(
        self, view: ProcessView, device: int, stream: int, name: str
    ) -> Sequence[Exemplar]:
        reader = self._processes.reader(view)
        if not self._shows_exemplars or reader is None:
            return ()
        found, zero = reader.exemplars(device, stream, name), unix_offset_ns()
        return [
            Exemplar(f"{stream}/{task}", ns, (zero + at) / 1e9)
            for task, ns, at in found
        ]

    def families(self, *, exemplars: bool = False) -> list[Family]:
        start = time.perf_counter()
        out = Families()
        with self.refreshed() as processes:
            views = processes.views
            self._shows_exemplars = exemplars
            for view in views:
                add_process(
                    out, view, self, ranked=self._ranked, per_stream=self._per_stream
                )
            stale, killed = processes.unreadable, processes.killed
        return [*out.all(), *_own(len(views), stale, killed, start).all()]

    async def response(
        self,
        request: Request,
        more: Callable[[], Sequence[Family]] = tuple,
        kept: float = KEPT_SECONDS,
    ) -> Response:
        """Answer a scrape, with more() added; `?name[]=` chooses series by name."""
        from starlette.responses import Response  # which a collector does not need

        accept, names = request.headers.get("accept", ""), request.query_params
        # In a thread, since many processes have a megabyte of metrics.
        body, kind = await asyncio.to_thread(
            self.answer, accept, more, kept=kept, names=names.getlist("name[]")
        )
        return Response(body, headers={"Content-Type": kind})

    def answer(
        self,
        accept: str,
        more: Callable[[], Sequence[Family]] = tuple,
        *,
        kept: float = 0.0,
        names: Sequence[str] = (),
    ) -> tuple[bytes, str]:
        """Return body and content type for an Accept header, with more() added.

        An answer is given again for `kept` seconds, so that a client in a loop takes
        no more of this machine than a scraper. `names`: only series of these names.
        """
        form = format_for(accept)
        if names:
            found = self.families(exemplars=form.open_metrics)
            return form.text([*found, *more()], names), form.content_type
        with self._answering:
            at, text = self._answers.get(form.text_kind, (-math.inf, b""))
            if time.monotonic() - at >= kept:
                at = time.monotonic()
                found = self.families(exemplars=form.open_metrics)
                text = form.text([*found, *more()])
                self._answers[form.text_kind] = at, text
            return text, form.content_type


def _own(segments: int, stale: int, killed: int, start: float) -> Families:
    """Return the exporter's metrics about itself."""
    import psutil  # which nothing else here needs

    out, labels = Families(), Labels()
    memory = psutil.Process().memory_info()
    out.info(
        "build",
        "What the exporter is.",
        Labels(
            version=npu_dispatch.__version__,
            torch=TORCH_VERSION,
            abi=str(LAYOUT_VERSION),
            mode="virtual",
        ),
    )
    text = "Processes found dead that had not ended by themselves."
    out.counter("exporter_processes_killed", text, labels, killed, zero=True)
    text = "CPU time of the exporter."
    used = time.process_time()
    out.counter("exporter_process_cpu_seconds", text, labels, used, zero=True)
    gauges = (
        ("process_resident_memory_bytes", "Memory of the exporter.", memory.rss),
        ("segments", "Statistics segments of living processes.", segments),
        ("segments_stale", "Segments that could not be read.", stale),
        (
            "scrape_duration_seconds",
            "Time to read the segments for this scrape.",
            time.perf_counter() - start,
        ),
    )
    for name, text, value in gauges:
        out.gauge(f"exporter_{name}", text, labels, value)
    return out
