"""The ranks of a job on one clock, which their collectives tell.

Each host has a monotonic clock of its own. In a collective that exchanges data among
all its ranks, no rank ends before each other one has begun. So two ranks of two hosts
tell of each such collective a least and a largest difference of their clocks, and the
ends, which are near each other, tell about which it is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from statistics import median

from npu_dispatch.observe.trace.tracks import Host, Joins, Process, collectives_of

# Collectives in which each rank needs all others.
_OF_ALL = {"all_reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter"}
_OF_ALL |= {"reduce_scatter_tensor", "barrier"}

Meeting = tuple[int, int]  # when a rank began, and when it ended
Meetings = dict[tuple[str, int], list[Meeting]]  # by group and number


@dataclass(frozen=True, slots=True)
class HostClock:
    """What to add to the times of a host for those of the first one."""

    host: Host
    offset_ns: int
    within_ns: int | None  # the true one is not farther from it; None: not known
    by: str

    @property
    def text(self) -> str:
        within = "" if self.within_ns is None else f" ± {self.within_ns / 1e3:.1f} µs"
        return (
            f"host {self.host.name}: skew {self.offset_ns / 1e6:+.6f} ms{within} "
            f"({self.by})"
        )


def clocks_of(processes: list[Process]) -> list[HostClock]:
    """Return the clock of each host, that of the lowest rank first."""
    hosts: dict[str, Host] = {}
    found: dict[str, Meetings] = defaultdict(lambda: defaultdict(list))
    for process in processes:
        if process.host is None:
            continue
        hosts.setdefault(process.host.boot, process.host)
        for key, meeting in _meetings(process):
            found[process.host.boot][key].append(meeting)
    if not hosts:
        return []
    first, *others = hosts.values()
    clocks = {first.boot: HostClock(first, 0, 0, "the clock of this file")}
    known = dict(found[first.boot])
    left = others
    while left:
        shared = {host.boot: found[host.boot].keys() & known.keys() for host in left}
        host = max(left, key=lambda host: len(shared[host.boot]))
        left = [other for other in left if other is not host]
        clock = clocks[host.boot] = _clock(host, known, found[host.boot], first)
        for key, meetings in found[host.boot].items():
            known[key] = known.get(key, []) + [
                (began + clock.offset_ns, ended + clock.offset_ns)
                for began, ended in meetings
            ]
    return [clocks[boot] for boot in hosts]


def _meetings(process: Process) -> list[tuple[tuple[str, int], Meeting]]:
    return [
        ((task.call.token, task.call.seq), (task.started, task.ended))
        for _, task in collectives_of(process)
        if task.call is not None
        and task.outcome == "done"
        and task.name.rpartition(":")[2] in _OF_ALL
    ]


def _clock(host: Host, known: Meetings, its: Meetings, first: Host) -> HostClock:
    least: list[int] = []
    most: list[int] = []
    ends: list[int] = []
    shared = its.keys() & known.keys()
    for key in shared:
        for began, ended in its[key]:
            for other_began, other_ended in known[key]:
                least.append(other_began - ended)
                most.append(other_ended - began)
                ends.append(other_ended - ended)
    if not ends:
        offset = host.unix_offset_ns - first.unix_offset_ns
        return HostClock(host, offset, None, "by the hosts' dates: no collective")
    low, high = max(least), min(most)
    offset = round(median(ends))
    if low <= high:
        offset = min(max(offset, low), high)
    # They cross where the clocks have moved against each other meanwhile.
    within = max(abs(high - offset), abs(offset - low))
    return HostClock(host, offset, within, f"by {len(shared)} collectives")


def as_one_job(processes: list[Process]) -> tuple[list[Process], list[HostClock]]:
    """Return the ranks first and in order, with all times moved to one clock.

    The clocks are those of the hosts that have ranks, the file's own first.
    """
    others = [process for process in processes if process.rank is None]
    ranks = [process for process in processes if process.rank is not None]
    ranks.sort(key=lambda process: process.rank or 0)
    clocks = clocks_of(ranks)
    offsets = {clock.host.boot: clock.offset_ns for clock in clocks}
    used = {process.pid for process in others}
    found = []
    for process in ranks:
        boot = process.host.boot if process.host else ""
        where = f" on {process.host.name}" if process.host and len(clocks) > 1 else ""
        pid = process.pid
        if pid in used:  # by a process of another host
            pid = next(n for n in count(1) if n not in used)
        used.add(pid)
        name = f"rank {process.rank}{where}: {process.name}"
        moved = offsets.get(boot, 0)
        found.append(replace(process, pid=pid, name=name, moved_by_ns=moved))
    return found + others, clocks


def job_lines(processes: list[Process], clocks: list[HostClock]) -> Iterator[str]:
    """Yield what a job's timeline is about: its clock, and who came last how often."""
    if len(clocks) == 1:
        yield f"one clock: all ranks are on host {clocks[0].host.name}, skew 0"
    elif clocks:
        yield from (clock.text for clock in clocks)
    joins = Joins(processes).members
    last = Counter(members[-1].rank for members in joins)
    for rank, times in sorted(last.items()):
        waited = sum(
            members[-1].started - members[0].started
            for members in joins
            if members[-1].rank == rank
        )
        yield (
            f"rank {rank} came last to {times} of {len(joins)} collectives, "
            f"{waited / 1e6:.1f} ms after the first in all"
        )
