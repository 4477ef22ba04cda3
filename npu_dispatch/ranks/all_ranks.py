"""What keeps the ranks of a job apart: their flight recorders, compared."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npu_dispatch.processes import Processes
from npu_dispatch.ranks.flight_recorder import Dump, dump_of, load
from npu_dispatch.stats import StatsReader

__all__ = ["from_files", "from_segments", "job_of", "report"]

Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Group:
    name: str
    ranks: tuple[int, ...]
    calls: dict[int, list[Entry]]  # by rank, if it has a dump; oldest first
    now_ns: dict[int, int]


def from_segments() -> list[Dump]:
    """Return the dumps of this machine's processes that are in a group."""
    with Processes() as processes:
        return [d for view in processes.refresh() if (d := _read(processes, view))]


def _read(processes: Processes, view: Any) -> Dump | None:
    reader: StatsReader | None = processes.reader(view)
    return dump_of(reader) if reader else None


def from_files(paths: Iterable[Path]) -> list[Dump]:
    """Return the dumps in files, and in folders of files.

    Raises ValueError for a file that is no dump.
    """
    found: list[Dump] = []
    for path in paths:
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        found += [load(file) for file in files if not file.name.startswith(".")]
    return found


def _jobs(dumps: list[Dump]) -> list[list[Dump]]:
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
    return next(job for job in _jobs([mine, *others]) if mine in job)


def _groups(job: list[Dump]) -> Iterator[_Group]:
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
        yield _Group(name, tuple(ranks), calls, now)


def _what(entry: Entry, ranks: tuple[int, ...] = ()) -> str:
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


def _age(entry: Entry, now_ns: int) -> str:
    since = entry["time_discovered_started_ns"] or entry["time_created_ns"]
    return f"{max(0, now_ns - since) / 1e9:.0f} s"


def _state(entry: Entry, now_ns: int) -> str:
    """Return how far a rank is with a call that is not done."""
    if entry.get("failed"):
        return "failed in"
    if entry["state"] == "started":
        return f"waits since {_age(entry, now_ns)} in"
    return f"has queued, {_age(entry, now_ns)} ago and behind other work,"


def _unlike(mine: Entry, theirs: Entry) -> str:
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


def _collectives(group: _Group) -> Iterator[str]:
    """Yield what ranks say of the first collective that not all have done."""
    of = {
        rank: {e["collective_seq_id"]: e for e in calls if not e["is_p2p"]}
        for rank, calls in group.calls.items()
    }
    open_ones = [
        number
        for calls in of.values()
        for number, entry in calls.items()
        if entry["state"] != "completed"
    ]
    if not open_ones:
        return
    number = min(open_ones)
    there = {rank: calls[number] for rank, calls in of.items() if number in calls}
    # What most ranks call is taken for what was meant; the first rank breaks a tie.
    ranks = sorted(there)
    meant = max(
        ranks, key=lambda r: sum(not _unlike(there[r], there[o]) for o in ranks)
    )
    wrong, absent = [], []
    for rank in group.ranks:
        now = group.now_ns.get(rank, 0)
        if rank in there:
            entry = there[rank]
            if unlike := _unlike(there[meant], entry):
                wrong.append(f"rank {rank} is at {_what(entry)}: {unlike}")
            elif entry["state"] == "completed":
                wrong.append(f"rank {rank} has done {_what(entry)}")
            else:
                yield f"rank {rank} {_state(entry, now)} {_what(entry)}"
        elif rank not in of:
            absent.append(f"rank {rank} has no process or dump here")
        else:
            last = max((n for n in of[rank] if n < number), default=None)
            text = f"rank {rank} has not called #{number}"
            if last is not None:
                text += f"; its last was {_what(of[rank][last])}"
            absent.append(text)
    yield from wrong
    yield from absent


def _messages(group: _Group) -> Iterator[str]:
    """Yield the sends and recvs that wait, and whether the other side does."""
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
            state = _state(entry, group.now_ns[rank])
            text = f"rank {rank} {state} {_what(entry, group.ranks)}"
            peer = entry["peer"]
            if 0 <= peer < len(group.ranks):
                other = "send" if entry["name"] == "recv" else "recv"
                me = group.ranks.index(rank)
                answer = any(
                    e["name"] == other and e["peer"] in (me, -1)
                    for e in waiting.get(group.ranks[peer], ())
                )
                if not answer and group.ranks[peer] in waiting:
                    text += f"; rank {group.ranks[peer]} has no {other} for it"
            yield text


def report(dumps: list[Dump]) -> list[str]:
    """Return lines that say who waits for what, and who does not, in each group."""
    lines = []
    for job in _jobs(dumps):
        pids = ", ".join(str(dump["pid"]) for dump in job if "pid" in dump)
        ranks = ", ".join(str(dump["rank"]) for dump in job)
        lines.append(f"job of ranks {ranks}" + (f" (processes {pids})" if pids else ""))
        for group in _groups(job):
            found = [*_collectives(group), *_messages(group)]
            if not found:
                found = ["every call has been done by all that made it"]
            lines.append(f"  group '{group.name}' of {len(group.ranks)} ranks:")
            lines += [f"    {line}" for line in found]
    return lines
