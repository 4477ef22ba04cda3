"""Whether the ranks of a group wait for the same one again and again."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import NamedTuple

from npu_dispatch.observe.judge.calls import Entry, Group, collectives_of

__all__ = ["SlowRank", "slow_rank"]

_FEWEST_CALLS = 5
_MOST_CALLS = 100  # the newest
_SPAN_NS = 10_000_000_000
_SHORTEST_NS = 3_000_000_000
_MOSTLY = 0.8  # of the calls
_SHARE = 0.2  # of the time


class SlowRank(NamedTuple):
    rank: int
    late: int  # of `calls`, how often it came last
    calls: int
    share: float  # of the time that the others waited
    span_ns: int
    by_device: bool  # its device comes late to what its host has called in time
    entry: Entry  # its newest call


def slow_rank(group: Group) -> SlowRank | None:
    """Return the rank that nearly always comes last and costs the others time.

    A rank knows how long it waited for the last one, so the ranks' clocks do not
    matter.
    """
    of = collectives_of(group)
    if len(of) < 2:
        return None
    newest = max(
        (e.get("ended_ns") or 0 for c in of.values() for e in c.values()), default=0
    )
    shared = set.intersection(*(set(calls) for calls in of.values()))
    met = [
        {rank: calls[number] for rank, calls in of.items()}
        for number in sorted(shared)[-_MOST_CALLS:]
        if all(_is_told(calls[number], newest) for calls in of.values())
    ]
    if len(met) < _FEWEST_CALLS:
        return None
    waits = [{rank: _waited(entry) for rank, entry in one.items()} for one in met]
    last = [min(one, key=lambda rank: one[rank]) for one in waits]
    rank, late = Counter(last).most_common(1)[0]
    lost = sum(
        statistics.median(ns for other, ns in one.items() if other != rank) - one[rank]
        for one in waits
    )
    span = met[-1][rank]["ended_ns"] - met[0][rank]["time_created_ns"]
    if span < _SHORTEST_NS or late < _MOSTLY * len(met) or lost < _SHARE * span:
        return None
    queued = sum(
        one[rank]["time_discovered_started_ns"] - one[rank]["time_created_ns"]
        for one in met
    )
    return SlowRank(
        *(rank, late, len(met), lost / span, span, queued > lost / 2, met[-1][rank])
    )


def _is_told(entry: Entry, newest: int) -> bool:
    ended = entry.get("ended_ns") or 0
    return (
        entry["state"] == "completed"
        and bool(entry.get("all_here_ns"))
        and bool(entry["time_discovered_started_ns"])
        and newest - ended < _SPAN_NS
    )


def _waited(entry: Entry) -> int:
    return int(entry["all_here_ns"] - entry["time_discovered_started_ns"])
