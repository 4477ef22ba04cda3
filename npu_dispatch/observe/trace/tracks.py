"""What a timeline shows, whatever its file's format.

It has, for each stream, a track of the tasks as they ran, a track of
submissions, and a counter of unfinished tasks. Arrows lead from a submission to
the start of its task, and from the task that a stream waited for to that wait. Where
several ranks of a job are shown, arrows join the same collective on all of them.
Slices of a track never overlap. Range markers have tracks of their own, for each
thread and each stream; there a slice may be inside another.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npu_dispatch.observe.segment.clock import unix_offset_ns
from npu_dispatch.observe.trace.marks import Lane, Span
from npu_dispatch.stream_names import stream_title

__all__ = [
    "Call",
    "Counter",
    "Host",
    "Process",
    "Slice",
    "StreamTrack",
    "arrows_of",
    "details",
    "steps",
    "submissions",
    "submit_arrow",
    "wait_arrow",
]

# How long a submission is drawn, at most; only its beginning is recorded.
_SUBMISSION_NS = 500


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


@dataclass(frozen=True, slots=True)
class Arrows:
    """The ids of the arrows that begin and end at the tasks of a process."""

    waits: dict[tuple[int, int, int], list[int]]  # (device, stream, position)
    of_wait: dict[tuple[int, int, int], int]


def arrows_of(process: Process) -> Arrows:
    there = {
        (track.device, track.stream, task.position)
        for track in process.streams
        for task in track.slices
    }
    arrows, first = Arrows({}, {}), 1
    for track in process.streams:
        for task in track.slices:
            if task.waited_for is None:
                continue
            device, stream, number = task.waited_for
            source = device, stream, number - 1
            if source in there:
                arrows.waits.setdefault(source, []).append(first)
                arrows.of_wait[track.device, track.stream, task.position] = first
                first += 1
    return arrows


def submissions(track: StreamTrack) -> Iterator[tuple[int, int, Slice]]:
    """Yield begin, end and task of each submission, in order, disjoint."""
    tasks = sorted(track.slices, key=lambda task: task.submitted)
    for task, after in zip(tasks, [*tasks[1:], None], strict=True):
        end = task.submitted + _SUBMISSION_NS
        if after is not None:
            end = min(end, after.submitted)
        yield task.submitted, end, task


def details(task: Slice) -> dict[str, Any]:
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


# The id of an arrow is unique over all processes of a file.
def submit_arrow(pid: int, track: int, position: int) -> int:
    return (pid << 41 | track << 34 | (position & 0x3FFFFFFF) << 1) & (2**63 - 1)


def wait_arrow(pid: int, number: int) -> int:
    return (pid << 41 | number << 1 | 1) & (2**63 - 1)


def steps(lane: Lane) -> Iterator[tuple[str, int, Span]]:
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
