"""Rows of figures about collectives, by process, group and collective."""

from __future__ import annotations

from typing import NamedTuple

from npu_dispatch.observe.segment import StatsReader
from npu_dispatch.observe.segment.collective_totals import CollectiveTotal, read_totals
from npu_dispatch.observe.segment.listing import ProcessView

__all__ = ["COLLECTIVE_HEADS", "CollectiveRates", "CollectiveRow", "collective_cells"]

COLLECTIVE_HEADS = (
    *("pid", "rank", "group", "collective", "calls/s", "MB/s", "mean us"),
    *("waits", "exposed", "host waits"),
)


class CollectiveRow(NamedTuple):
    """The calls of one name in one group since the last sample.

    The last three are shares of the time: until the last rank had called, while
    nothing else ran on the device, and while the host waited meanwhile.
    """

    pid: int
    rank: int  # of the world
    group: str
    collective: str
    calls_per_s: float
    bytes_per_s: float
    mean_us: float
    waits: float
    exposed: float
    host_waits: float


class CollectiveRates:
    """What collectives do between two samples of their processes."""

    def __init__(self) -> None:
        # By id: who, when, and what had been counted by then.
        self._before: dict[str, tuple[int, float, list[CollectiveTotal]]] = {}

    def rows(self, view: ProcessView, reader: StatsReader) -> list[CollectiveRow]:
        totals = read_totals(*reader.behind())
        pid, start = view.info.pid, view.info.monotonic_ns / 1e9
        who, then, past = self._before.get(view.id, (pid, start, []))
        if who != pid:
            then, past = start, []
        self._before[view.id] = pid, view.tick, totals
        seconds = max(view.tick - then, 1e-9)
        # Entries are handed out in order, and keep their place.
        old: list[CollectiveTotal | None] = [*past, *[None] * len(totals)]
        return [
            _row(pid, new, before, seconds)
            for new, before in zip(totals, old, strict=False)
        ]


def _row(
    pid: int, now: CollectiveTotal, before: CollectiveTotal | None, seconds: float
) -> CollectiveRow:
    def since(name: str) -> float:
        old: int = getattr(before, name) if before else 0
        new: int = getattr(now, name)
        return max(0, new - old) / seconds

    run = now.run - before.run if before else now.run
    return CollectiveRow(
        pid=pid,
        rank=now.group.global_rank,
        group=now.group.title,
        collective=now.name,
        calls_per_s=run.count / seconds,
        bytes_per_s=since("bytes"),
        mean_us=run.mean / 1e3,
        waits=since("waited_ns") / 1e9,
        exposed=since("exposed_ns") / 1e9,
        host_waits=since("host_wait_ns") / 1e9,
    )


def collective_cells(row: CollectiveRow) -> tuple[str, ...]:
    return (
        str(row.pid),
        str(row.rank),
        row.group,
        row.collective,
        f"{row.calls_per_s:.0f}",
        f"{row.bytes_per_s / 1e6:.1f}",
        f"{row.mean_us:.1f}",
        f"{row.waits:.0%}",
        f"{row.exposed:.0%}",
        f"{row.host_waits:.0%}",
    )
