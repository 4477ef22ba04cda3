"""What the ranks of a job have called: their flight recorders, side by side."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from npu_dispatch.observe.judge.flight_recorder import Dump

__all__ = [
    "Entry",
    "Group",
    "Meeting",
    "age",
    "collectives_of",
    "groups_of",
    "job_of",
    "jobs_of",
    "meeting_of",
    "state_of",
    "unlike",
    "waiting_messages",
    "what",
]

Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    ranks: tuple[int, ...]
    calls: dict[int, list[Entry]]  # by rank, if it has a dump; oldest first
    now_ns: dict[int, int]


def jobs_of(dumps: list[Dump]) -> list[list[Dump]]:
    """Return the dumps that share a group, together."""
    jobs: list[tuple[set[str], list[Dump]]] = []
    for dump in dumps:
        # Files that torch wrote have the groups' names only; they are of one job.
        tokens = set(dump.get("groups") or dump["pg_config"]) - {""}
        mine = [dump]
        for job in [job for job in jobs if job[0] & tokens]:
            tokens |= job[0]
            mine = job[1] + mine
            jobs.remove(job)
        jobs.append((tokens, mine))
    return [sorted(job, key=lambda dump: dump["rank"]) for _, job in jobs]


def job_of(mine: Dump, others: list[Dump]) -> list[Dump]:
    """Return the dumps of the job that `mine` belongs to, `mine` included."""
    return next(job for job in jobs_of([mine, *others]) if mine in job)


def groups_of(job: list[Dump]) -> Iterator[Group]:
    known: dict[str, tuple[str, list[int]]] = {}
    for dump in job:
        known |= dump.get("groups") or {
            name: (name, ast.literal_eval(str(config["ranks"])))
            for name, config in dump["pg_config"].items()
        }
    for token, (name, ranks) in known.items():
        calls = {
            dump["rank"]: [
                entry
                for entry in dump["entries"]
                if entry.get("token", entry["process_group"][0]) == token
            ]
            for dump in job
            if dump["rank"] in ranks
        }
        now = {dump["rank"]: dump.get("time_ns", 0) for dump in job}
        yield Group(name, tuple(ranks), calls, now)


def what(entry: Entry, ranks: tuple[int, ...] = ()) -> str:
    name = entry.get("name") or entry["profiling_name"].partition(":")[2]
    line = entry.get("line") or ""
    if not line and entry.get("frames"):
        frame = entry["frames"][0]
        line = f"{frame['filename']}:{frame['line']}"
    if entry["is_p2p"]:
        peer = entry.get("peer", -1)
        arrow = "from" if name == "recv" else "to"
        known = 0 <= peer < len(ranks)
        name += f" {arrow} {f'rank {ranks[peer]}' if known else 'any rank'}"
    else:
        name += f" #{entry['collective_seq_id']}"
    return f"{name} ({line})" if line else str(name)


def age(entry: Entry, now_ns: int) -> str:
    since = entry["time_discovered_started_ns"] or entry["time_created_ns"]
    return f"{max(0, now_ns - since) / 1e9:.0f} s"


def state_of(entry: Entry, now_ns: int) -> str:
    """Return how far a rank is with a call that is not done."""
    if entry.get("failed"):
        return "failed in"
    if entry["state"] == "started":
        return f"waits since {age(entry, now_ns)} in"
    return f"has queued, {age(entry, now_ns)} ago and behind other work,"


def unlike(mine: Entry, theirs: Entry) -> str:
    """Return what differs in two ranks' calls of one number; "" if nothing does."""

    def name(entry: Entry) -> str:
        return str(entry.get("name") or entry["profiling_name"])

    def elements(entry: Entry, which: str) -> list[int]:
        return [math.prod(sizes) for sizes in entry[f"{which}_sizes"]]

    if name(mine) != name(theirs):
        return "different collectives"
    for what in ("reduction", "root"):
        if mine.get(what) != theirs.get(what):
            return f"different {what}s: {theirs.get(what)} and {mine.get(what)}"
    rooted = name(mine) in ("gather", "scatter", "reduce")
    uneven = name(mine).startswith("all_to_all")
    for which in ("input", "output"):
        dtypes = mine[f"{which}_dtypes"], theirs[f"{which}_dtypes"]
        if not rooted and set(dtypes[0]) != set(dtypes[1]):
            return f"different dtypes: {dtypes[1]} and {dtypes[0]}"
        sizes = theirs[f"{which}_sizes"], mine[f"{which}_sizes"]
        if rooted or uneven or elements(mine, which) == elements(theirs, which):
            continue
        return f"different {which} sizes: {sizes[0]} and {sizes[1]}"
    return ""


@dataclass(frozen=True, slots=True)
class Meeting:
    """The first collective of a group that not all ranks have done."""

    number: int
    there: dict[int, Entry]  # by rank, of those that have called it and kept the entry
    meant: int  # the rank whose call most of them have made, too
    absent: list[int]  # ranks with a dump that have not called it
    last: dict[int, Entry]  # by rank, the newest call before it

    def wrong(self) -> dict[int, str]:
        """Return the ranks that call something else, and what differs."""
        meant = self.there[self.meant]
        found = {rank: unlike(meant, entry) for rank, entry in self.there.items()}
        return {rank: text for rank, text in found.items() if text}


def collectives_of(group: Group) -> dict[int, dict[int, Entry]]:
    """Return each rank's collectives by number."""
    return {
        rank: {e["collective_seq_id"]: e for e in calls if not e["is_p2p"]}
        for rank, calls in group.calls.items()
    }


def meeting_of(group: Group) -> Meeting | None:
    of = collectives_of(group)
    open_ones = [
        number
        for calls in of.values()
        for number, entry in calls.items()
        if entry["state"] != "completed"
    ]
    if not open_ones:
        return None
    number = min(open_ones)
    there = {rank: calls[number] for rank, calls in of.items() if number in calls}
    # What most ranks call is taken for what was meant; the first rank breaks a tie.
    ranks = sorted(there)
    meant = max(ranks, key=lambda r: sum(not unlike(there[r], there[o]) for o in ranks))
    absent = [rank for rank, calls in of.items() if max(calls, default=-1) < number]
    last = {
        rank: calls[max(n for n in calls if n < number)]
        for rank, calls in of.items()
        if any(n < number for n in calls)
    }
    return Meeting(number, there, meant, absent, last)


def waiting_messages(group: Group) -> Iterator[tuple[int, Entry, int]]:
    """Yield (rank, send or recv that waits, who has no answer to it or -1)."""
    waiting = {
        rank: [
            e
            for e in calls
            if e["is_p2p"] and e["state"] != "completed" and "peer" in e
        ]
        for rank, calls in group.calls.items()
    }
    for rank, calls in waiting.items():
        for entry in calls:
            peer, silent = entry["peer"], -1
            if 0 <= peer < len(group.ranks):
                other = "send" if entry["name"] == "recv" else "recv"
                me = group.ranks.index(rank)
                answer = any(
                    e["name"] == other and e["peer"] in (me, -1)
                    for e in waiting.get(group.ranks[peer], ())
                )
                if not answer and group.ranks[peer] in waiting:
                    silent = group.ranks[peer]
            yield rank, entry, silent
