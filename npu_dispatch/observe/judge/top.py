"""What the processes of this user do on npu: rows of figures, and a screen.

This reads statistics segments only, so it needs neither torch nor any help from the
processes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from npu_dispatch.observe.judge.collective_rows import (
    COLLECTIVE_HEADS,
    CollectiveRates,
    CollectiveRow,
    collective_cells,
)
from npu_dispatch.observe.judge.rates import key, stream_rates
from npu_dispatch.observe.judge.verdict import HANG_SECONDS, Verdict, attention, judge
from npu_dispatch.observe.segment.listing import Processes, ProcessView, StreamView
from npu_dispatch.observe.segment.proc_stat import is_here
from npu_dispatch.observe.segment.script_name import name_of

if TYPE_CHECKING:
    from textual.app import App

__all__ = [
    "COLLECTIVE_HEADS",
    "CollectiveRow",
    "ProcessRow",
    "Sampler",
    "StreamRow",
    "collective_cells",
    "live_screen",
    "table",
]


class ProcessRow(NamedTuple):
    pid: int
    name: str  # of its script
    rank: str  # of the world; "" of none
    command: str
    verdict: str  # its kind
    at: str  # the Python line to look at
    action: str  # what to do
    age_s: float
    streams: int
    queued: int
    submitted: int
    allocated: int
    reserved: int
    failed_streams: int


class StreamRow(NamedTuple):
    """One stream, with rates and latencies for the time since the last sample."""

    pid: int
    device: int
    stream: int
    state: str
    queued: int
    capacity: int
    tasks_per_s: float
    latency_us_p50: float
    latency_us_p99: float
    full_waits: int
    submitted: int
    failed: int
    dropped: int


class Sampler:
    """Takes samples of some processes; each is compared with the one before.

    Processes that need somebody's attention come first. `everybody`: include those
    that have launched nothing yet.
    """

    def __init__(
        self,
        pids: list[int] | None = None,
        *,
        everybody: bool = False,
        directory: Path | None = None,
    ) -> None:
        self._pids = pids
        self._everybody = everybody or bool(pids)
        self._processes = Processes(directory=directory)
        self._before: dict[str, ProcessView] = {}
        self._rates = CollectiveRates()
        self.collectives: list[CollectiveRow] = []  # of the last sample

    def sample(self) -> tuple[list[ProcessRow], list[StreamRow]]:
        found = []
        self.collectives = []
        views = self._processes.refresh()
        for view in views:
            here = is_here(view.info.pid_namespace)  # else its number means nothing
            if not here or (self._pids and view.info.pid not in self._pids):
                continue
            before = self._before.get(view.id)
            if before is not None and before.info != view.info:
                before = None
            reader = self._processes.reader(view)
            lines = reader.waits_by_site() if reader else []
            if reader:
                self.collectives += self._rates.rows(view, reader)
            verdict = judge(before, view, lines=lines)
            row = self._process_row(view, verdict)
            if row.submitted or self._everybody:
                found.append((attention(verdict.kind), row, before, view))
        self._before = {view.id: view for view in views}
        found.sort(key=lambda each: (each[0], each[1].pid))
        streams = [row for *_, old, now in found for row in _stream_rows(old, now)]
        return [row for _, row, *_ in found], streams

    def _process_row(self, view: ProcessView, verdict: Verdict) -> ProcessRow:
        found = [stream.stats for stream in view.streams]
        pid = view.info.pid
        return ProcessRow(
            pid=pid,
            name=name_of(view.info),
            rank=view.rank,
            command=" ".join(view.info.command),
            verdict=verdict.kind,
            at=verdict.at,
            action=verdict.action,
            age_s=(time.monotonic_ns() - view.info.monotonic_ns) / 1e9,
            streams=len(found),
            queued=sum(stream.depth for stream in found),
            submitted=sum(s.submitted + s.inline_tasks for s in found),
            allocated=sum(device.allocated for device in view.devices),
            reserved=sum(device.reserved for device in view.devices),
            failed_streams=sum(s.state == "failed" for s in found),
        )


def _stream_rows(before: ProcessView | None, now: ProcessView) -> Iterator[StreamRow]:
    old = {key(stream): stream.stats for stream in before.streams} if before else {}
    rates = stream_rates(before, now)
    for view in now.streams:
        stream, past = view.stats, old.get(key(view))
        latency = stream.latency_ns - past.latency_ns if past else stream.latency_ns
        yield StreamRow(
            pid=now.info.pid,
            device=stream.device,
            stream=stream.stream,
            state=_state(view, now.tick),
            queued=stream.depth,
            capacity=stream.capacity,
            tasks_per_s=rates[key(view)].retired if past else 0.0,
            latency_us_p50=latency.percentile(0.5) / 1e3,
            latency_us_p99=latency.percentile(0.99) / 1e3,
            full_waits=stream.full_waits,
            submitted=stream.submitted,
            failed=stream.failed,
            dropped=stream.dropped,
        )


def _state(stream: StreamView, now: float) -> str:
    """Return hung for a stream with work that has not moved, or else its state."""
    since = stream.oldest_since
    is_stuck = since is not None and now - since >= HANG_SECONDS
    return "hung" if is_stuck else stream.state


PROCESS_HEADS = (
    "pid",
    "script",
    "rank",
    "verdict",
    "streams",
    "queued",
    "tasks",
    "memory",
    "age",
    "command",
)
STREAM_HEADS = (
    "pid",
    "stream",
    "state",
    "queued",
    "tasks/s",
    "p50 us",
    "p99 us",
    "full",
    "failed",
    "dropped",
)


def process_cells(row: ProcessRow) -> tuple[str, ...]:
    memory = f"{row.allocated / 2**20:.1f}/{row.reserved / 2**20:.1f} MiB"
    return (
        str(row.pid),
        row.name,
        row.rank,
        row.verdict,
        str(row.streams),
        str(row.queued),
        str(row.submitted),
        memory,
        f"{row.age_s:.0f} s",
        row.command,
    )


def stream_cells(row: StreamRow) -> tuple[str, ...]:
    return (
        str(row.pid),
        f"npu:{row.device}/{row.stream}",
        row.state,
        f"{row.queued}/{row.capacity}",
        f"{row.tasks_per_s:.0f}",
        f"{row.latency_us_p50:.1f}",
        f"{row.latency_us_p99:.1f}",
        str(row.full_waits),
        str(row.failed),
        str(row.dropped),
    )


def table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return aligned plain text; the last column is not padded."""
    all_rows = [heads, *rows]
    widths = [max(len(row[i]) for row in all_rows) for i in range(len(heads))]
    lines = (
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in all_rows
    )
    return "\n".join(lines)


def as_json(sampler: Sampler) -> dict[str, Any]:
    """Return one sample as plain values."""
    processes, streams = sampler.sample()
    return {
        "processes": [row._asdict() for row in processes],
        "streams": [row._asdict() for row in streams],
        "collectives": [row._asdict() for row in sampler.collectives],
    }


def live_screen(sampler: Sampler, interval: float) -> App[None]:
    """Return the screen of `npu-dispatch top`; needs textual."""
    from rich.text import Text
    from textual.app import App, ComposeResult
    from textual.widgets import DataTable, Footer, Header

    class Top(App[None]):
        TITLE = "npu-dispatch top"
        BINDINGS = [("q", "quit", "Quit"), ("p", "pause", "Pause")]  # noqa: RUF012
        CSS = "#processes, #collectives { height: auto; max-height: 40%; }"
        paused = False

        def compose(self) -> ComposeResult:
            yield Header()
            yield DataTable(id="processes")
            yield DataTable(id="streams")
            yield DataTable(id="collectives")
            yield Footer()

        def on_mount(self) -> None:
            for name, heads in (
                ("#processes", PROCESS_HEADS),
                ("#streams", STREAM_HEADS),
                ("#collectives", COLLECTIVE_HEADS),
            ):
                self.query_one(name, DataTable).add_columns(*heads)
            self.refresh_rows()
            self.set_interval(interval, self.refresh_rows)

        def action_pause(self) -> None:
            self.paused = not self.paused

        def refresh_rows(self) -> None:
            if self.paused:
                return
            processes, streams = sampler.sample()
            self._fill("#processes", [process_cells(row) for row in processes])
            self._fill("#streams", [stream_cells(row) for row in streams])
            shown = [collective_cells(row) for row in sampler.collectives]
            self.query_one("#collectives").display = bool(shown)
            self._fill("#collectives", shown)

        def _fill(self, name: str, rows: list[tuple[str, ...]]) -> None:
            shown = self.query_one(name, DataTable)
            at = shown.cursor_coordinate
            shown.clear()
            # As they are: a command or an error may look like markup, list[int].
            shown.add_rows([Text(cell) for cell in row] for row in rows)
            if rows:
                shown.move_cursor(row=min(at.row, len(rows) - 1), column=at.column)

    return Top()
