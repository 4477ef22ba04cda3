"""What the processes of this user do on npu: rows of figures, once or live.

This reads statistics segments only, so it needs neither torch nor any help from the
processes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from npu_dispatch.observe.judge import rates
from npu_dispatch.observe.judge.verdict import HANG_SECONDS, attention, judge, stuck_for
from npu_dispatch.observe.segment.listing import Processes
from npu_dispatch.observe.segment.system import is_here
from npu_dispatch.observe.segment.values import picked
from npu_dispatch.words import table

if TYPE_CHECKING:
    from rich.console import Console

Row = dict[str, Any]

_LEAST_INTERVAL_S = 0.1


# By head, how a cell is made of a row's values.
_PROCESS = {
    "pid": "{pid}",
    "script": "{name}",
    "rank": "{rank}",
    "verdict": "{verdict}",
    "streams": "{streams}",
    "queued": "{queued}",
    "tasks": "{submitted}",
    "memory": "{allocated_mib:,.1f}/{reserved_mib:,.1f} MiB",
    "age": "{age_s:,.0f} s",
    "command": "{command}",
}
_OF_ALL_USERS = {"user": "{user}", **_PROCESS}
_STREAM = {
    "pid": "{pid}",
    "stream": "npu:{device}/{stream}",
    "state": "{state}",
    "queued": "{queued}/{capacity}",
    "tasks/s": "{tasks_per_s:.0f}",
    "p50 us": "{latency_us_p50:.1f}",
    "p99 us": "{latency_us_p99:.1f}",
    "full": "{full_waits}",
    "failed": "{failed}",
    "dropped": "{dropped}",
}
_COLLECTIVE = {
    "pid": "{pid}",
    "rank": "{rank}",
    "group": "{group}",
    "collective": "{collective}",
    "calls/s": "{calls_per_s:.0f}",
    "MB/s": "{mb_per_s:.1f}",
    "mean us": "{mean_us:.1f}",
    "waits": "{waits:.0%}",
    "exposed": "{exposed:.0%}",
    "host waits": "{host_waits:.0%}",
}


class Sample(NamedTuple):
    """Rows of plain values, as JSON has them; memory is in bytes.

    Processes that need somebody's attention come first. Rates and latencies of
    streams and collectives are of the time since the last sample.
    """

    processes: list[Row]
    streams: list[Row]
    collectives: list[Row]

    def process_table(self, *, users: bool = False) -> str:
        """Return the processes; `users`: with the user of each."""
        rows = (
            row
            | {
                f"{which}_mib": row[which] / 2**20
                for which in ("allocated", "reserved")
            }
            for row in self.processes
        )
        return table(_OF_ALL_USERS if users else _PROCESS, rows)

    def text(self) -> str:
        parts = [self.process_table(), table(_STREAM, self.streams)]
        if self.collectives:
            rows = (r | {"mb_per_s": r["bytes_per_s"] / 1e6} for r in self.collectives)
            parts.append(table(_COLLECTIVE, rows))
        return "\n\n".join(parts)


class Sampler:
    """Takes samples of some processes; each is compared with the one before.

    `everybody`: include those that have launched nothing yet.
    """

    def __init__(
        self,
        pids: list[int] | None = None,
        *,
        everybody: bool = False,
        directory: Path | None = None,
        all_users: bool = False,
    ) -> None:
        self._pids = pids
        self._everybody = everybody or bool(pids)
        self._processes = Processes(directory=directory, all_users=all_users)
        self._past = rates.History(0)  # the last reading, and the one before

    def sample(self) -> Sample:
        readings = [
            rates.Reading(view, view.reader.waits_by_site())
            for view in self._processes.refresh()
            # Numbers of another namespace mean nothing here.
            if is_here(view.info.pid_namespace)
            and (not self._pids or view.info.pid in self._pids)
        ]
        self._past.note(readings)
        found = []
        for now in readings:
            before = self._past.before(now.view)
            row = _process_row(before, now)
            if row["submitted"] or self._everybody:
                found.append((row, before, now))
        found.sort(key=lambda each: (attention(each[0]["verdict"]), each[0]["pid"]))
        return Sample(
            [row for row, *_ in found],
            [row for _, old, now in found for row in _stream_rows(old, now)],
            [row for _, old, now in found for row in _collective_rows(old, now)],
        )


def _process_row(before: rates.Reading | None, now: rates.Reading) -> Row:
    view = now.view
    verdict = judge(before, now)
    found = [stream.stats for stream in view.streams]
    return {
        "pid": view.info.pid,
        "name": view.info.name,
        "user": view.user,
        "rank": view.rank,
        "command": " ".join(view.info.command),
        "verdict": verdict.kind,
        "at": verdict.at,  # the Python line to look at
        "action": verdict.action,
        "age_s": (time.monotonic_ns() - view.info.monotonic_ns) / 1e9,
        "streams": len(found),
        "queued": sum(stream.depth for stream in found),
        "submitted": sum(s.submitted + s.inline_tasks for s in found),
        "allocated": sum(device.allocated for device in view.devices),
        "reserved": sum(device.reserved for device in view.devices),
        "failed_streams": sum(s.state == "failed" for s in found),
    }


def _stream_rows(before: rates.Reading | None, now: rates.Reading) -> Iterator[Row]:
    past = before.view if before else None
    old, elapsed = rates.streams_of(past), rates.seconds(past, now.view)
    for view in now.view.streams:
        stream, earlier = view.stats, old.get(rates.key(view))
        latency = rates.since(stream, earlier, "latency_ns")
        retired = rates.since(stream, earlier, "retired")
        stuck = stuck_for(now.view, view) >= HANG_SECONDS
        yield {
            "pid": now.view.info.pid,
            **picked(stream, "device stream"),
            "state": "hung" if stuck else view.state,
            "queued": stream.depth,
            "capacity": stream.capacity,
            "tasks_per_s": retired / elapsed if earlier else 0.0,
            "latency_us_p50": latency.percentile(0.5) / 1e3,
            "latency_us_p99": latency.percentile(0.99) / 1e3,
            **picked(stream, "full_waits submitted failed dropped"),
        }


def _collective_rows(before: rates.Reading | None, now: rates.Reading) -> Iterator[Row]:
    elapsed = rates.seconds(before.view if before else None, now.view)
    # Entries are handed out in order, and keep their place.
    old = dict(enumerate(before.view.totals if before else ()))
    for place, total in enumerate(now.view.totals):
        run = rates.since(total, old.get(place), "run")
        each = {
            name: rates.since(total, old.get(place), name) / elapsed
            for name in ("bytes", "waited_ns", "exposed_ns", "host_wait_ns")
        }
        # The shares are of the time: until the last rank had called, while nothing
        # else ran on the device, and while the host waited meanwhile.
        yield {
            "pid": now.view.info.pid,
            "rank": total.group.global_rank,  # of the world
            "group": total.group.title,
            "collective": total.name,
            "calls_per_s": run.count / elapsed,
            "bytes_per_s": each["bytes"],
            "mean_us": run.mean / 1e3,
            "waits": each["waited_ns"] / 1e9,
            "exposed": each["exposed_ns"] / 1e9,
            "host_waits": each["host_wait_ns"] / 1e9,
        }


def live(sampler: Sampler, interval: float, console: Console | None = None) -> None:
    """Show the tables on the whole screen, until Ctrl-C; `interval` in seconds."""
    from rich.live import Live
    from rich.text import Text

    with (
        contextlib.suppress(KeyboardInterrupt),
        Live(console=console, screen=True, auto_refresh=False) as screen,
    ):
        while True:
            # As it is: a command may look like markup, list[int].
            text = Text(sampler.sample().text(), no_wrap=True, overflow="crop")
            screen.update(text, refresh=True)
            time.sleep(max(interval, _LEAST_INTERVAL_S))
