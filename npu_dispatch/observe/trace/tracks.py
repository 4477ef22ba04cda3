"""What a timeline shows, whatever its file's format.

It has, for each stream, a track of the tasks as they ran, a track of
submissions, and a counter of unfinished tasks. Arrows lead from a submission to
the start of its task, and from the task that a stream waited for to that wait. Where
several ranks of a job are shown, arrows join the same collective on all of them.
Slices of a track never overlap. Range markers have tracks of their own, for each
thread and each stream; there a slice may be inside another.
"""

from __future__ import annotations

import hashlib
import socket
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from npu_dispatch.observe.segment.system import unix_offset_ns
from npu_dispatch.words import stream_title

Place = tuple[int, int, int, int]  # process, device, stream, position

# How long a submission is drawn, at most; only its beginning is recorded.
_SUBMISSION_NS = 500
# The numbers of rows: those of streams and ranges first, then those of counters.
_DEPTHS, _COUNTERS = 1 << 18, 1 << 19


@dataclass(frozen=True, slots=True)
class Call:
    """What a task was that ran a collective, or moved messages."""

    group: str
    token: str  # the group's, the same on all its ranks
    seq: int  # in its group: of collectives, or of messages
    is_message: bool
    bytes: int


@dataclass(frozen=True, slots=True)
class Slice:
    """One task. Times are CLOCK_MONOTONIC nanoseconds."""

    name: str
    position: int
    submitted: int
    started: int
    ended: int
    depth: int
    outcome: str = "done"
    # What it waited for: (device, stream, number).
    waited_for: tuple[int, int, int] | None = None
    line: str = ""  # "train.py:12 in step", of the program; "": not known
    call: Call | None = None


@dataclass(slots=True)
class StreamTrack:
    device: int
    stream: int
    slices: list[Slice]
    lost: int = 0

    @property
    def name(self) -> str:
        return stream_title(self.device, self.stream)


@dataclass(frozen=True, slots=True)
class Span:
    """One range in one place; where `began` equals `ended`, it is a single moment.

    `device` is -1 for the host, where `where` is a thread; else `where` is a
    stream. Times are CLOCK_MONOTONIC nanoseconds. `ended` is None for a range that
    is still open.
    """

    name: str
    domain: str
    number: int
    device: int
    where: int
    began: int
    ended: int | None


@dataclass(slots=True)
class Lane:
    """Spans of one place, in the order in which they begin.

    Any two of them are disjoint, or one is inside the other.
    """

    device: int
    where: int
    index: int
    spans: list[Span]

    @property
    def name(self) -> str:
        place = f"thread {self.where}"
        if self.device >= 0:
            place = stream_title(self.device, self.where)
        more = f" ({self.index + 1})" if self.index else ""
        return f"{place} ranges{more}"


@dataclass(slots=True)
class Counter:
    name: str
    unit: str
    samples: list[tuple[int, int]] = field(default_factory=list)  # ns, value


@dataclass(frozen=True, slots=True)
class Host:
    """A machine, from its start to its stop: what has one monotonic clock."""

    name: str
    boot: str  # differs after each start
    unix_offset_ns: int  # what to add to a moment for one since 1970

    @classmethod
    def this(cls) -> Host:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return cls(socket.gethostname(), boot, unix_offset_ns())


@dataclass(slots=True)
class Process:
    pid: int
    name: str
    streams: list[StreamTrack]
    counters: list[Counter] = field(default_factory=list)
    lanes: list[Lane] = field(default_factory=list)  # of range markers
    rank: int | None = None  # of the job's; None: it is in no group
    host: Host | None = None
    moved_by_ns: int = 0  # what to add to its times for those of the job's clock


class _Member(NamedTuple):
    """A rank's part in a collective. Those that came first are less."""

    started: int  # on the job's clock
    rank: int
    place: Place


class Joins:
    """What is the same collective on several ranks of a timeline."""

    def __init__(self, processes: list[Process]) -> None:
        found: dict[tuple[str, int], list[_Member]] = defaultdict(list)
        for process in processes:
            for place, task in collectives_of(process):
                assert task.call
                began = task.started + process.moved_by_ns
                member = _Member(began, process.rank or 0, place)
                found[task.call.token, task.call.seq].append(member)
        # Of each collective that several ranks had, in the order in which they came.
        self.members: list[list[_Member]] = []
        self._of: dict[Place, tuple[int, list[_Member], int]] = {}
        for (token, seq), members in found.items():
            if len(members) == 1:
                continue
            members.sort()
            self.members.append(members)
            digest = hashlib.blake2b(f"{token} {seq}".encode(), digest_size=8).digest()
            arrow = int.from_bytes(digest) >> 1
            for at, member in enumerate(members):
                self._of[member.place] = arrow, members, at

    def arrow(self, place: Place) -> tuple[int, str] | None:
        """Return the arrow that passes a task, and whether it begins there ("s"), ends
        ("f") or goes on ("t"); None where no arrow does."""
        if place not in self._of:
            return None
        arrow, members, at = self._of[place]
        return arrow, {0: "s", len(members) - 1: "f"}.get(at, "t")

    def details(self, place: Place) -> dict[str, Any]:
        """Return when its rank came, in comparison with the others."""
        if place not in self._of:
            return {}
        _, members, at = self._of[place]
        first, mine, last = members[0], members[at], members[-1]
        return {
            "arrived_after_ns": mine.started - first.started,
            "last_rank": last.rank,
            "waited_for_last_ns": last.started - mine.started,
        }


def collectives_of(process: Process) -> Iterator[tuple[Place, Slice]]:
    """Yield the tasks of a rank that ran a collective."""
    for track in process.streams if process.rank is not None else ():
        for task in track.slices:
            if task.call is not None and not task.call.is_message:
                place = process.pid, track.device, track.stream, task.position
                yield place, task


class Row(NamedTuple):
    """A line of the timeline, or a counter."""

    number: int  # among the rows of its process
    name: str
    unit: str = ""  # of a counter
    below: int = 0  # the row that a counter belongs to; 0: the process


class Arrow(NamedTuple):
    """Where an arrow begins ("s"), passes ("t") or ends ("f"), on an event's row."""

    kind: str  # submit, wait, collective
    id: int  # unique over all processes of a file
    phase: str
    ns: int


class Event(NamedTuple):
    """What is to be seen in a row. Times are CLOCK_MONOTONIC of the process's host."""

    row: Row
    kind: str  # slice, or begin, end and point of a range, or value of a counter
    ns: int
    name: str = ""
    ended: int = 0  # of a slice
    domain: str = ""  # of a range
    value: int = 0
    notes: dict[str, Any] | None = None
    arrows: Sequence[Arrow] = ()


def began_ns(processes: list[Process]) -> int:
    """Return when the first event of all was, on the job's clock; 0 without any."""
    return min(
        (
            ns + process.moved_by_ns
            for process in processes
            for moments in (
                (task.submitted for track in process.streams for task in track.slices),
                (span.began for lane in process.lanes for span in lane.spans),
                (ns for one in process.counters for ns, _ in one.samples),
            )
            for ns in moments
        ),
        default=0,
    )


def events(process: Process, joins: Joins) -> Iterator[Row | Event]:
    """Yield all rows and events; a row before its events, which are in order."""
    waits = _wait_arrows(process)
    for index, track in enumerate(process.streams):
        runs = Row(2 * index + 1, track.name)
        submits = Row(2 * index + 2, f"{track.name} submissions")
        depth = Row(_DEPTHS + index, f"{track.name} depth", "tasks", runs.number)
        yield from (runs, submits, depth)
        for begin, end, task in _submissions(track):
            arrow = Arrow("submit", _submit_arrow(process, index, task), "s", begin)
            yield Event(submits, "slice", begin, task.name, end, arrows=[arrow])
        for task in track.slices:
            place = process.pid, track.device, track.stream, task.position
            number = _submit_arrow(process, index, task)
            arrows = [Arrow("submit", number, "f", task.started), *waits[place[1:]]]
            if joined := joins.arrow(place):
                arrows.append(Arrow("collective", *joined, task.started))
            yield Event(
                runs,
                "slice",
                task.started,
                task.name,
                task.ended,
                notes=_details(task) | joins.details(place),
                arrows=arrows,
            )
            yield Event(depth, "value", task.ended, value=task.depth)
    for number, lane in enumerate(process.lanes, 2 * len(process.streams) + 1):
        yield (row := Row(number, lane.name))
        for kind, ns, span in _steps(lane):
            yield Event(row, kind, ns, span.name, domain=span.domain)
    for number, counter in enumerate(process.counters, _COUNTERS):
        yield (row := Row(number, counter.name, counter.unit))
        for ns, value in counter.samples:
            yield Event(row, "value", ns, value=value)


def _arrow(process: Process, number: int) -> int:
    return (process.pid << 41 | number) & (2**63 - 1)


def _submit_arrow(process: Process, track: int, task: Slice) -> int:
    return _arrow(process, track << 34 | (task.position & 0x3FFFFFFF) << 1)


def _wait_arrows(process: Process) -> dict[tuple[int, int, int], list[Arrow]]:
    """Return the arrows of waits by device, stream and position of a task."""
    tasks = {
        (track.device, track.stream, task.position): task
        for track in process.streams
        for task in track.slices
    }
    arrows: dict[tuple[int, int, int], list[Arrow]] = defaultdict(list)
    for number, (place, task) in enumerate(tasks.items()):
        if task.waited_for is None:
            continue
        device, stream, after = task.waited_for
        source = device, stream, after - 1
        if source in tasks:
            arrow = _arrow(process, number << 1 | 1)
            arrows[source].append(Arrow("wait", arrow, "s", tasks[source].started))
            arrows[place].append(Arrow("wait", arrow, "f", task.ended))
    return arrows


def _submissions(track: StreamTrack) -> Iterator[tuple[int, int, Slice]]:
    """Yield begin, end and task of each submission, in order, disjoint."""
    tasks = sorted(track.slices, key=lambda task: task.submitted)
    for task, after in zip(tasks, [*tasks[1:], None], strict=True):
        end = task.submitted + _SUBMISSION_NS
        if after is not None:
            end = min(end, after.submitted)
        yield task.submitted, end, task


def _details(task: Slice) -> dict[str, Any]:
    details: dict[str, Any] = {
        "task": task.position,
        "queued_ns": task.started - task.submitted,
        "outcome": task.outcome,
    }
    if task.line:
        details["line"] = task.line
    if task.waited_for is not None:
        device, stream, number = task.waited_for
        details["waited_for"] = f"{stream_title(device, stream)} number {number}"
    if (call := task.call) is not None:
        details |= {"group": call.group, "group_token": call.token, "seq": call.seq}
        kind = "message" if call.is_message else "collective"
        details |= {"kind": kind, "bytes": call.bytes}
    return details


def _steps(lane: Lane) -> Iterator[tuple[str, int, Span]]:
    """Yield the begins, ends and single moments of a lane, in order.

    Where several have the same time, an inner range begins after its outer one and
    ends before it. A range that is still open has no end.
    """
    inside: list[Span] = []

    def ended_by(moment: float) -> Iterator[tuple[str, int, Span]]:
        while inside and (end := inside[-1].ended) is not None and end <= moment:
            yield "end", end, inside.pop()

    for span in lane.spans:
        yield from ended_by(span.began)
        if span.ended == span.began:
            yield "point", span.began, span
        else:
            yield "begin", span.began, span
            inside.append(span)
    yield from ended_by(float("inf"))
