"""The ranks of a job in one timeline: on one clock, and joined at their collectives."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from npu_dispatch.observe.trace.clocks import HostClock, clocks_of
from npu_dispatch.observe.trace.tracks import Process, Slice

__all__ = ["Joins", "as_one_job", "job_lines"]

Place = tuple[int, int, int, int]  # process, device, stream, position


@dataclass(frozen=True, slots=True)
class _Join:
    """One collective on several ranks, in the order in which they came."""

    arrow: int
    members: list[tuple[int, Place, Slice]]  # rank, place, task


def as_one_job(processes: list[Process]) -> tuple[list[Process], list[HostClock]]:
    """Return the ranks first and in order, with all times those of one clock.

    The clocks are those of the hosts that have ranks, the file's own first.
    """
    ranks = sorted(
        (p for p in processes if p.rank is not None), key=lambda p: p.rank or 0
    )
    clocks = clocks_of(ranks)
    offsets = {clock.host.boot: clock.offset_ns for clock in clocks}
    used = {process.pid for process in processes if process.rank is None}
    found = []
    for process in ranks:
        boot = process.host.boot if process.host else ""
        where = f" on {process.host.name}" if process.host and len(clocks) > 1 else ""
        pid = process.pid
        if pid in used:  # by a process of another host
            pid = next(n for n in count(1) if n not in used)
        used.add(pid)
        name = f"rank {process.rank}{where}: {process.name}"
        moved = replace(process, pid=pid, name=name)
        found.append(_moved(moved, offsets.get(boot, 0)))
    return found + [p for p in processes if p.rank is None], clocks


def _moved(process: Process, by: int) -> Process:
    """Return the process with all its times `by` later."""
    if not by:
        return process
    streams = [
        replace(
            track,
            slices=[
                replace(
                    task,
                    submitted=task.submitted + by,
                    started=task.started + by,
                    ended=task.ended + by,
                )
                for task in track.slices
            ],
        )
        for track in process.streams
    ]
    counters = [
        replace(counter, samples=[(ns + by, value) for ns, value in counter.samples])
        for counter in process.counters
    ]
    lanes = [
        replace(
            lane,
            spans=[
                replace(
                    span,
                    began=span.began + by,
                    ended=None if span.ended is None else span.ended + by,
                )
                for span in lane.spans
            ],
        )
        for lane in process.lanes
    ]
    return replace(process, streams=streams, counters=counters, lanes=lanes)


class Joins:
    """What is the same collective on several ranks of a timeline."""

    def __init__(self, processes: list[Process]) -> None:
        self._of: dict[Place, _Join] = {}
        for join in _joins(processes):
            for _, place, _ in join.members:
                self._of[place] = join

    def arrow(self, place: Place) -> tuple[int, str] | None:
        """Return the arrow that passes a task, and whether it is its "first" end,
        its "last" or neither ("step"); None where no arrow does."""
        if (join := self._of.get(place)) is None:
            return None
        at = [member[1] for member in join.members].index(place)
        end = {0: "first", len(join.members) - 1: "last"}.get(at, "step")
        return join.arrow, end

    def details(self, place: Place) -> dict[str, Any]:
        """Return when its rank came, in comparison with the others."""
        if (join := self._of.get(place)) is None:
            return {}
        first, last = join.members[0][2], join.members[-1]
        [mine] = [task for _, at, task in join.members if at == place]
        return {
            "arrived_after_ns": mine.started - first.started,
            "last_rank": last[0],
            "waited_for_last_ns": last[2].started - mine.started,
        }


def _joins(processes: list[Process]) -> Iterator[_Join]:
    found: dict[tuple[str, int], list[tuple[int, Place, Slice]]] = defaultdict(list)
    for process in processes:
        if process.rank is None:
            continue
        for track in process.streams:
            for task in track.slices:
                if task.call is None or task.call.is_message:
                    continue
                place = process.pid, track.device, track.stream, task.position
                key = task.call.token, task.call.seq
                found[key].append((process.rank, place, task))
    for (token, seq), members in found.items():
        if len(members) > 1:
            members.sort(key=lambda member: (member[2].started, member[0]))
            digest = hashlib.blake2b(f"{token} {seq}".encode(), digest_size=8).digest()
            yield _Join(int.from_bytes(digest) >> 1, members)


def job_lines(processes: list[Process], clocks: list[HostClock]) -> Iterator[str]:
    """Yield what a job's timeline is about: its clock, and who came last how often."""
    if len(clocks) == 1:
        yield f"one clock: all ranks are on host {clocks[0].host.name}, skew 0"
    elif clocks:
        yield from (clock.text for clock in clocks)
    joins = list(_joins(processes))
    last = Counter(join.members[-1][0] for join in joins)
    for rank, times in sorted(last.items()):
        waited = sum(
            join.members[-1][2].started - join.members[0][2].started
            for join in joins
            if join.members[-1][0] == rank
        )
        yield (
            f"rank {rank} came last to {times} of {len(joins)} collectives, "
            f"{waited / 1e6:.1f} ms after the first in all"
        )
