"""What the ranks of a job have called: their flight recorders, side by side.

Another version or another program may have written a dump, or it is cut short, so
each field is checked.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from npu_dispatch.observe.segment.values import fitted
from npu_dispatch.words import age

Dump = dict[str, Any]
Sizes = tuple[tuple[int, ...], ...]
_NO_PEER = -2


class Frame(NamedTuple):
    filename: str
    line: int


class Call(NamedTuple):
    """One call of a rank, as torch's flight recorder names its fields.

    Times are nanoseconds since 1970, 0: not yet or not known. What has a default is
    ours, or not in every version of torch.
    """

    process_group: tuple[str, ...]
    collective_seq_id: int  # in its group, of collectives
    is_p2p: bool
    profiling_name: str
    time_created_ns: int
    time_discovered_started_ns: int
    input_sizes: Sizes
    input_dtypes: tuple[str, ...]
    output_sizes: Sizes
    output_dtypes: tuple[str, ...]
    state: str  # scheduled, started, completed
    name: str = ""  # "all_reduce"
    token: str = ""  # of its group
    line: str = ""  # "train.py:12 in step"
    frames: tuple[Frame, ...] = ()
    failed: bool = False
    all_here_ns: int = 0  # when every rank had called
    ended_ns: int = 0
    peer: int = _NO_PEER  # rank in the group, of a send or recv; -1: any
    stream: tuple[int, ...] = ()  # device, stream
    reduction: str = ""
    root: int = -1

    @property
    def is_done(self) -> bool:
        return self.state == "completed"

    @property
    def began_ns(self) -> int:
        return self.time_discovered_started_ns or self.time_created_ns

    @property
    def answer(self) -> str:
        """What answers a message."""
        return "send" if self.name == "recv" else "recv"

    def text(self, ranks: tuple[int, ...] = ()) -> str:
        """Return "all_reduce #3 (train.py:12 in step)"; `ranks`: of its group."""
        text = f"{self.name} #{self.collective_seq_id}"
        if self.is_p2p:
            known = 0 <= self.peer < len(ranks)
            whom = f"rank {ranks[self.peer]}" if known else "any rank"
            text = f"{self.name} {'from' if self.name == 'recv' else 'to'} {whom}"
        return f"{text} ({self.line})" if self.line else text

    def progress(self, now_ns: int) -> str:
        """Return how far a rank is with a call that is not done."""
        if self.failed:
            return "failed in"
        since = age((now_ns - self.began_ns) / 1e9)
        if self.state == "started":
            return f"has been waiting for {since} in"
        return f"has queued, {since} ago and behind other work,"


class SeenStream(NamedTuple):
    """A stream with work."""

    stream: tuple[int, int]
    runs: str
    at: str
    held_by: tuple[int, ...]  # the stream that it waits for; (): none
    dead: bool = False  # its thread is gone


class Seen(NamedTuple):
    """What is seen of a rank's process besides its calls; 0 and "": not known."""

    id: str = ""  # as ProcessView has it
    stopped: bool = False
    exits: bool = False
    streams: tuple[SeenStream, ...] = ()
    resent: int = 0  # connections that send again what nobody confirms
    line: str = ""  # where its main thread is
    line_since_ns: int = 0
    seen_ns: int = 0  # when that was last looked at
    oom_ns: int = 0  # when an allocation was last seen to have failed
    in_loader: bool = False  # within torch.utils.data


class _Config(NamedTuple):
    ranks: object


class Rank(NamedTuple):
    """A dump: one rank of the world, what it has called and what is seen of it."""

    rank: int
    entries: tuple[Call, ...]  # oldest first
    pg_config: dict[str, _Config]  # groups by name
    groups: dict[str, tuple[str, object]] = {}  # noqa: RUF012 - name, ranks by token
    pid: int = 0
    time_ns: int = 0  # when it was made
    process: Seen = Seen()

    def members(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Return each group's name and ranks, by its token."""
        # Files that torch wrote have the groups' names only; they are of one job.
        named = {name: (name, one.ranks) for name, one in self.pg_config.items()}
        return {
            token: (name, _ranks(ranks))
            for token, (name, ranks) in (self.groups or named).items()
        }


def _ranks(value: object) -> tuple[int, ...]:
    try:
        found = ast.literal_eval(str(value))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        found = value
    ranks: tuple[int, ...] = fitted(tuple[int, ...], found, "ranks")
    return ranks


def rank_of(dump: Dump) -> Rank:
    """Return a rank's dump, checked.

    Raises ValueError that names the first field which cannot be used.
    """
    found: Rank = fitted(Rank, dump, "the dump")
    found.members()
    return found._replace(entries=tuple(map(_named, found.entries)))


def _named(call: Call) -> Call:
    """Return a call with our own fields, made of torch's where they are missing."""
    line = "".join(f"{frame.filename}:{frame.line}" for frame in call.frames[:1])
    return call._replace(
        name=call.name or call.profiling_name.partition(":")[2],
        token=call.token or "".join(call.process_group[:1]),
        line=call.line or line,
    )


def jobs_of(dumps: list[Dump]) -> list[list[Dump]]:
    """Return the dumps that share a group, together."""
    jobs: list[tuple[set[str], list[Dump]]] = []
    for dump in dumps:
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


def unlike(mine: Call, theirs: Call) -> str:
    """Return what differs in two ranks' calls of one number; "" if nothing does."""
    if mine.name != theirs.name:
        return "different collectives"
    if mine.reduction != theirs.reduction:
        return f"different reductions: {theirs.reduction} and {mine.reduction}"
    if mine.root != theirs.root:
        return f"different roots: {theirs.root} and {mine.root}"
    if mine.name in ("gather", "scatter", "reduce"):
        return ""
    for which in ("input", "output"):
        dtypes = [list(getattr(call, f"{which}_dtypes")) for call in (theirs, mine)]
        if set(dtypes[0]) != set(dtypes[1]):
            return "different dtypes: {} and {}".format(*dtypes)
        sizes = [
            [list(one) for one in getattr(call, f"{which}_sizes")]
            for call in (theirs, mine)
        ]
        elements = [[math.prod(one) for one in found] for found in sizes]
        if elements[0] != elements[1] and not mine.name.startswith("all_to_all"):
            return "different {} sizes: {} and {}".format(which, *sizes)
    return ""


@dataclass(frozen=True, slots=True)
class Meeting:
    """The first collective of a group that not all ranks have done."""

    number: int
    there: dict[int, Call]  # by rank, of those that have called it and kept the call
    meant: int  # the rank whose call most of them have made, too
    absent: list[int]  # ranks with a dump that have not called it
    last: dict[int, Call]  # by rank, the newest call before it

    def wrong(self) -> dict[int, str]:
        """Return the ranks that call something else, and what differs."""
        meant = self.there[self.meant]
        found = {rank: unlike(meant, call) for rank, call in self.there.items()}
        return {rank: text for rank, text in found.items() if text}


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    ranks: tuple[int, ...]
    calls: dict[int, list[Call]]  # by rank, if it has a dump; oldest first

    def collectives(self) -> dict[int, dict[int, Call]]:
        """Return each rank's collectives by number."""
        return {
            rank: {call.collective_seq_id: call for call in calls if not call.is_p2p}
            for rank, calls in self.calls.items()
        }

    def meeting(self) -> Meeting | None:
        of = self.collectives()
        number = min(
            (n for c in of.values() for n, call in c.items() if not call.is_done),
            default=None,
        )
        if number is None:
            return None
        there = {rank: calls[number] for rank, calls in of.items() if number in calls}
        # What most ranks call is taken for what was meant; the first breaks a tie.
        meant = max(
            sorted(there),
            key=lambda r: sum(not unlike(there[r], other) for other in there.values()),
        )
        before = {rank: [n for n in calls if n < number] for rank, calls in of.items()}
        return Meeting(
            number,
            there,
            meant,
            absent=[r for r, calls in of.items() if max(calls, default=-1) < number],
            last={rank: of[rank][max(ns)] for rank, ns in before.items() if ns},
        )

    def waiting_messages(self) -> Iterator[tuple[int, Call, int]]:
        """Yield (rank, send or recv that waits, who has no answer to it or -1)."""
        waiting = {
            rank: [
                call
                for call in calls
                if call.is_p2p and not call.is_done and call.peer != _NO_PEER
            ]
            for rank, calls in self.calls.items()
        }
        for rank, calls in waiting.items():
            me = self.ranks.index(rank)
            for call in calls:
                known = 0 <= call.peer < len(self.ranks)
                whom = self.ranks[call.peer] if known else -1
                answers = any(
                    one.name == call.answer and one.peer in (me, -1)
                    for one in waiting.get(whom, ())
                )
                yield rank, call, whom if whom in waiting and not answers else -1


def groups_of(job: list[Rank]) -> list[Group]:
    known = {token: group for one in job for token, group in one.members().items()}
    return [
        Group(
            name,
            ranks,
            {
                one.rank: [call for call in one.entries if call.token == token]
                for one in job
                if one.rank in ranks
            },
        )
        for token, (name, ranks) in known.items()
    ]
