"""Answers scrapes with the metrics of the processes that use the device."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from prometheus_client import Metric, ProcessCollector
from prometheus_client.samples import Exemplar

import npu_dispatch
from npu_dispatch.observe.judge.describe import Killed
from npu_dispatch.observe.judge.rates import History, Reading
from npu_dispatch.observe.judge.verdict import judge
from npu_dispatch.observe.segment import StatsReader
from npu_dispatch.observe.segment.layout import LAYOUT_VERSION
from npu_dispatch.observe.segment.listing import Processes, ProcessView
from npu_dispatch.observe.segment.system import unix_offset_ns
from npu_dispatch.observe.segment.values import OpCost
from npu_dispatch.observe.serve.families import Families, Labels, format_for
from npu_dispatch.observe.serve.options import ServiceConfig
from npu_dispatch.observe.serve.process_metrics import More, add_process
from npu_dispatch.versions import TORCH_VERSION
from npu_dispatch.words import short

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

_SPAN_SECONDS = 5.0  # a verdict is about at least so long
_MOST_KILLED = 16
_OTHER = "other"
# Operators that are among the costliest only later get series too, up to so many
# times the number that was asked for.
_ROOM = 2


class TopOps:
    """The series of one process: its costliest `most` operators, and all others.

    No counter ever falls. An operator that was once among the costliest keeps its
    series. If others were shown before, its series begins at zero, and what it had
    cost by then stays in the sum of the others.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._before: dict[str, tuple[int, int]] = {}  # by operator: tasks, ns

    def rows(self, costs: Sequence[OpCost]) -> list[OpCost]:
        """Return the series, the others' last. `costs` has the costliest first."""
        first = not self._before
        for cost in costs[: self._most]:
            if len(self._before) < _ROOM * self._most:
                entry = (0, 0) if first else (cost.tasks, cost.ns)
                self._before.setdefault(cost.op, entry)
        rows = []
        for cost in costs:
            if (past := self._before.get(cost.op)) is not None:
                rows.append(OpCost(cost.op, cost.tasks - past[0], cost.ns - past[1]))
        tasks = sum(cost.tasks for cost in costs) - sum(row.tasks for row in rows)
        ns = sum(cost.ns for cost in costs) - sum(row.ns for row in rows)
        return [*rows, OpCost(_OTHER, tasks, ns)]


class Scrapes:
    """Answers scrapes, on any thread, with the processes that `config` asks for."""

    def __init__(self, config: ServiceConfig) -> None:
        self._config = config
        self._processes = Processes(
            pid=config.pid, directory=config.directory, all_users=config.all_users
        )
        self._lock = threading.Lock()  # guards the processes, and what follows
        self._history = History(_SPAN_SECONDS)
        self.killed = Killed(self._processes)  # for who has the processes
        # By the open segment: a program that replaces itself counts from zero.
        self._tops: WeakKeyDictionary[StatsReader, TopOps] = WeakKeyDictionary()
        self._answering = threading.Lock()  # guards these
        # By Format.open_metrics: the moment, what was read, and texts of all of it by
        # Format.escaping.
        self._kept: dict[bool, tuple[float, list[Metric], dict[str, bytes]]] = {}

    @contextlib.contextmanager
    def processes(self) -> Iterator[Processes]:
        """Keep the list of processes as it is, for a short reading of more of them."""
        with self._lock:
            yield self._processes

    @contextlib.contextmanager
    def refreshed(self) -> Iterator[Processes]:
        """Read everything again, and then as processes()."""
        with self.processes() as processes:
            self._history.note(map(Reading, processes.refresh()))
            yield processes

    def _more(self, view: ProcessView, exemplars: bool) -> More:
        before, ops = self._history.before(view), []
        if most := self._config.ops:
            top = self._tops.setdefault(view.reader, TopOps(most))
            ops = top.rows(view.reader.ops())
        hang_seconds = self._config.hang_seconds
        verdict = judge(before, Reading(view), hang_seconds=hang_seconds)
        shown = partial(_exemplars, view.reader) if exemplars else lambda *_: ()
        return More(verdict, ops, shown)

    def families(self, *, exemplars: bool = False) -> list[Metric]:
        start = time.perf_counter()
        out = Families()
        with self.refreshed() as processes:
            views = processes.views
            for view in views:
                add_process(out, view, self._more(view, exemplars), self._config)
            stale, killed = len(processes.unreadable), processes.killed
            late = self.killed.look()[:_MOST_KILLED]
        _add_killed(out, late)
        _add_own(out, len(views), stale, killed, start)
        return [*out.all(), *_PROCESS.collect()]

    async def response(
        self,
        request: Request,
        more: Callable[[], Sequence[Metric]] = tuple,
    ) -> Response:
        """Answer a scrape, with more() added; `?name[]=` chooses series by name."""
        from starlette.responses import Response  # which a collector does not need

        accept = request.headers.get("accept", "")
        names = request.query_params.getlist("name[]")
        # In a thread, since many processes have a megabyte of metrics.
        body, kind = await asyncio.to_thread(self.answer, accept, more, names=names)
        return Response(body, headers={"Content-Type": kind})

    def answer(
        self,
        accept: str,
        more: Callable[[], Sequence[Metric]] = tuple,
        *,
        names: Sequence[str] = (),
    ) -> tuple[bytes, str]:
        """Return body and content type for an Accept header, with more() added.

        A reading is shown again for a second, so that a client in a loop takes no more
        of this machine than a scraper. `names`: only series of these names.
        """
        form = format_for(accept)
        with self._answering:
            at, found, texts = self._kept.get(form.open_metrics, (-math.inf, [], {}))
            if time.monotonic() - at >= self._config.kept_seconds:
                at, texts = time.monotonic(), {}
                found = [*self.families(exemplars=form.open_metrics), *more()]
                self._kept[form.open_metrics] = at, found, texts
            if not names and form.escaping not in texts:
                texts[form.escaping] = form.text(found)
            text = form.text(found, names) if names else texts[form.escaping]
            return text, form.content_type


def _exemplars(
    reader: StatsReader, device: int, stream: int, name: str
) -> list[Exemplar]:
    zero = unix_offset_ns()
    return [
        Exemplar({"task": f"{stream}/{task}"}, ns / 1e9, round((zero + at) / 1e9, 3))
        for task, ns, at in reader.exemplars(device, stream, name)
    ]


def _add_killed(out: Families, late: Sequence[dict[str, Any]]) -> None:
    """Add who was killed, and the last Python line that is known of each."""
    told = set()
    for one in late:
        labels = {name: str(one[name]) for name in ("pid", "name", "user")}
        more = {"rank": one["rank"], "job_id": one["job_id"], "line": short(one["at"])}
        labels |= {name: value for name, value in more.items() if value}
        # Two containers may have the same PID.
        if (key := tuple(labels.values())) not in told:
            told.add(key)
            text = "A process killed in the last ten minutes."
            out.info("exporter_killed_process", text, Labels(labels))


# What the exporter itself takes of the machine.
_PROCESS = ProcessCollector("npu_dispatch_exporter", registry=None)


def _add_own(
    out: Families, segments: int, stale: int, killed: int, start: float
) -> None:
    """Add the exporter's metrics about itself."""
    labels = Labels()
    about = Labels(
        version=npu_dispatch.__version__,
        torch=TORCH_VERSION,
        abi=str(LAYOUT_VERSION),
        mode="virtual",
    )
    out.info("build", "What the exporter is.", about)
    text = "Processes found dead that had not ended by themselves."
    out.counter("exporter_processes_killed", text, labels, killed, zero=True)
    text = "Statistics segments of living processes."
    out.gauge("exporter_segments", text, labels, segments)
    text = "Segments that could not be read."
    out.gauge("exporter_segments_stale", text, labels, stale)
    text = "Time to read the segments for this scrape."
    took = time.perf_counter() - start
    out.gauge("exporter_scrape_duration_seconds", text, labels, took)
