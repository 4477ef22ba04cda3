"""What the processes of this user do on npu: rows of figures, and a screen.

This reads statistics segments only, so it needs neither torch nor any help from the
processes.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from npu_dispatch.diagnosis.verdict import attention, judge
from npu_dispatch.processes import Processes, ProcessView, is_alive
from npu_dispatch.processes.script_name import name_of
from npu_dispatch.stats import StreamStats

if TYPE_CHECKING:
    from textual.app import App

__all__ = ["ProcessRow", "Sampler", "StreamRow", "live_screen", "table"]


class ProcessRow(NamedTuple):
    pid: int
    name: str  # of its script
    command: str
    verdict: str
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


def _command(pid: int) -> str:
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return "?"
    return raw.replace(b"\0", b" ").decode(errors="replace").strip()


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
        self._last: dict[tuple[int, int, int], tuple[float, StreamStats]] = {}

    def sample(self) -> tuple[list[ProcessRow], list[StreamRow]]:
        found = []
        views = self._processes.refresh()
        for view in views:
            here = is_alive(view.info)  # else its number means nothing
            if not here or (self._pids and view.info.pid not in self._pids):
                continue
            verdict = judge(self._before.get(view.slot), view)
            row = self._process_row(view, verdict.kind)
            if row.submitted or self._everybody:
                found.append((attention(verdict.kind), row, view))
        self._before = {view.slot: view for view in views}
        found.sort(key=lambda each: (each[0], each[1].pid))
        streams = [
            self._row(view.info.pid, stream.stats)
            for _, _, view in found
            for stream in view.streams
        ]
        return [row for _, row, _ in found], streams

    def _process_row(self, view: ProcessView, verdict: str) -> ProcessRow:
        found = [stream.stats for stream in view.streams]
        pid = view.info.pid
        return ProcessRow(
            pid=pid,
            name=name_of(pid),
            command=_command(pid),
            verdict=verdict,
            age_s=(time.monotonic_ns() - view.info.monotonic_ns) / 1e9,
            streams=len(found),
            queued=sum(stream.depth for stream in found),
            submitted=sum(s.submitted + s.inline_tasks for s in found),
            allocated=sum(device.allocated for device in view.devices),
            reserved=sum(device.reserved for device in view.devices),
            failed_streams=sum(s.state == "failed" for s in found),
        )

    def _row(self, pid: int, stream: StreamStats) -> StreamRow:
        now, key = time.monotonic(), (pid, stream.device, stream.stream)
        before = self._last.get(key)
        self._last[key] = now, stream
        rate, latency = 0.0, stream.latency_ns
        if before is not None:
            then, old = before
            rate = (stream.retired - old.retired) / max(now - then, 1e-9)
            latency -= old.latency_ns
        return StreamRow(
            pid=pid,
            device=stream.device,
            stream=stream.stream,
            state=stream.state,
            queued=stream.depth,
            capacity=stream.capacity,
            tasks_per_s=rate,
            latency_us_p50=latency.percentile(0.5) / 1e3,
            latency_us_p99=latency.percentile(0.99) / 1e3,
            full_waits=stream.full_waits,
            submitted=stream.submitted,
            failed=stream.failed,
            dropped=stream.dropped,
        )


PROCESS_HEADS = (
    "pid",
    "script",
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
    }


def live_screen(sampler: Sampler, interval: float) -> App[None]:
    """Return the screen of `npu-dispatch top`; needs textual."""
    from rich.text import Text
    from textual.app import App, ComposeResult
    from textual.widgets import DataTable, Footer, Header

    class Top(App[None]):
        TITLE = "npu-dispatch top"
        BINDINGS = [("q", "quit", "Quit"), ("p", "pause", "Pause")]  # noqa: RUF012
        CSS = "#processes { height: auto; max-height: 40%; }"
        paused = False

        def compose(self) -> ComposeResult:
            yield Header()
            yield DataTable(id="processes")
            yield DataTable(id="streams")
            yield Footer()

        def on_mount(self) -> None:
            for name, heads in (
                ("#processes", PROCESS_HEADS),
                ("#streams", STREAM_HEADS),
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

        def _fill(self, name: str, rows: list[tuple[str, ...]]) -> None:
            shown = self.query_one(name, DataTable)
            at = shown.cursor_coordinate
            shown.clear()
            # As they are: a command or an error may look like markup, list[int].
            shown.add_rows([Text(cell) for cell in row] for row in rows)
            if rows:
                shown.move_cursor(row=min(at.row, len(rows) - 1), column=at.column)

    return Top()
