"""Write a timeline as Chrome JSON or as native Perfetto protobuf.

Both have, for each stream, a track of the tasks as they ran, a track of
submissions, and a counter of unfinished tasks. Arrows lead from a submission to
the start of its task, and from the task that a stream waited for to that wait.
Slices of a track never overlap. Range markers have tracks of their own, for each
thread and each stream; there a slice may be inside another.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npu_dispatch.timeline.marks import Lane, Span

__all__ = ["Counter", "Process", "Slice", "StreamTrack", "chrome_json", "perfetto"]

# How long a submission is drawn, at most; only its beginning is recorded.
_SUBMISSION_NS = 500


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


@dataclass(slots=True)
class StreamTrack:
    device: int
    stream: int
    slices: list[Slice]
    lost: int = 0

    @property
    def name(self) -> str:
        return f"npu:{self.device} stream {self.stream}"


@dataclass(slots=True)
class Counter:
    name: str
    unit: str
    samples: list[tuple[int, int]] = field(default_factory=list)  # ns, value


@dataclass(slots=True)
class Process:
    pid: int
    name: str
    streams: list[StreamTrack]
    counters: list[Counter] = field(default_factory=list)
    lanes: list[Lane] = field(default_factory=list)  # of range markers


@dataclass(frozen=True, slots=True)
class _Arrows:
    """The ids of the arrows that begin and end at the tasks of a process."""

    waits: dict[tuple[int, int, int], list[int]]  # (device, stream, position)
    of_wait: dict[tuple[int, int, int], int]


def _arrows(process: Process, first: int) -> _Arrows:
    there = {
        (track.device, track.stream, task.position)
        for track in process.streams
        for task in track.slices
    }
    arrows = _Arrows({}, {})
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
        details["waited_for"] = f"npu:{device} stream {stream} number {number}"
    return details


# The id of an arrow is unique over all processes of a file.
def _submit_arrow(pid: int, track: int, position: int) -> int:
    return (pid << 41 | track << 34 | (position & 0x3FFFFFFF) << 1) & (2**63 - 1)


def _wait_arrow(pid: int, number: int) -> int:
    return (pid << 41 | number << 1 | 1) & (2**63 - 1)


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


def chrome_json(processes: list[Process], path: Path) -> None:
    """Write the format of chrome://tracing.

    Times are microseconds, with three decimals, since the first event of all;
    `otherData` has that event's time on CLOCK_MONOTONIC.
    """
    tasks = (t for p in processes for track in p.streams for t in track.slices)
    marks = (s.began for p in processes for lane in p.lanes for s in lane.spans)
    counts = (
        ns for p in processes for counter in p.counters for ns, _ in counter.samples
    )
    origin = min((*(task.submitted for task in tasks), *marks, *counts), default=0)
    head = {"displayTimeUnit": "ns", "otherData": {"origin_ns": origin}}
    with path.open("w") as out:
        out.write(json.dumps(head)[:-1] + ',"traceEvents":[\n')
        separator = ""
        for process in processes:
            for event in _chrome_events(process, origin):
                out.write(separator + json.dumps(event, separators=(",", ":")))
                separator = ",\n"
        out.write("\n]}\n")


def _chrome_events(process: Process, origin: int) -> Iterator[dict[str, Any]]:
    pid = process.pid
    arrows = _arrows(process, 1)

    def event(kind: str, ns: int, tid: int, **more: Any) -> dict[str, Any]:
        return {"ph": kind, "pid": pid, "tid": tid, "ts": (ns - origin) / 1e3, **more}

    def label(kind: str, tid: int, name: str) -> dict[str, Any]:
        return {
            "ph": "M",
            "pid": pid,
            "tid": tid,
            "name": kind,
            "args": {"name": name},
        }

    yield label("process_name", 0, process.name)
    for index, track in enumerate(process.streams):
        runs, submits = 2 * index + 1, 2 * index + 2
        yield label("thread_name", runs, track.name)
        yield label("thread_name", submits, f"{track.name} submissions")
        for begin, end, task in _submissions(track):
            yield event("X", begin, submits, dur=(end - begin) / 1e3, name=task.name)
            arrow = {"cat": "submit", "name": "submit"}
            arrow_id = _submit_arrow(pid, index, task.position)
            yield event("s", begin, submits, id=arrow_id, **arrow)
            yield event("f", task.started, runs, id=arrow_id, bp="e", **arrow)
        for task in track.slices:
            yield event(
                "X",
                task.started,
                runs,
                dur=(task.ended - task.started) / 1e3,
                name=task.name,
                args=_details(task),
            )
            key = track.device, track.stream, task.position
            wait = {"cat": "wait", "name": "wait"}
            for number in arrows.waits.get(key, ()):
                yield event(
                    "s", task.started, runs, id=_wait_arrow(pid, number), **wait
                )
            if key in arrows.of_wait:
                number = arrows.of_wait[key]
                yield event(
                    "f", task.ended, runs, id=_wait_arrow(pid, number), bp="e", **wait
                )
            depth = {"tasks": task.depth}
            yield event("C", task.ended, runs, name=f"depth {track.name}", args=depth)
    for index, lane in enumerate(process.lanes):
        tid = 2 * len(process.streams) + 1 + index
        yield label("thread_name", tid, lane.name)
        for step, ns, span in _steps(lane):
            about = {"name": span.name, "cat": span.domain}
            if step == "point":
                yield event("i", ns, tid, s="t", **about)
            else:
                yield event("B" if step == "begin" else "E", ns, tid, **about)
    for counter in process.counters:
        for ns, value in counter.samples:
            yield event("C", ns, 0, name=counter.name, args={counter.unit: value})


# Perfetto's wire format: protos/perfetto/trace/trace_packet.proto and those it
# names. Field numbers below are of TracePacket, TrackEvent, TrackDescriptor.


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(tag: int, value: int) -> bytes:
    return _varint(tag << 3) + _varint(value & (2**64 - 1))


def _fixed64(tag: int, value: int) -> bytes:
    return _varint(tag << 3 | 1) + value.to_bytes(8, "little")


def _bytes(tag: int, value: bytes | str) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return _varint(tag << 3 | 2) + _varint(len(raw)) + raw


_SEQUENCE = _number(10, 1)  # trusted_packet_sequence_id
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
_CLOCK = _number(58, 3)  # timestamp_clock_id: MONOTONIC


def _packet(body: bytes) -> bytes:
    return _bytes(1, body + _SEQUENCE)


def _track(uuid: int, name: str, more: bytes) -> bytes:
    return _packet(_bytes(60, _number(1, uuid) + _bytes(2, name) + more))


def _event(ns: int, kind: int, uuid: int, more: bytes = b"") -> bytes:
    body = _number(9, kind) + _number(11, uuid) + more
    return _packet(_number(8, ns) + _CLOCK + _bytes(11, body))


def _annotation(name: str, value: Any) -> bytes:
    tagged = _bytes(6, value) if isinstance(value, str) else _number(3, value)
    return _bytes(4, _bytes(10, name) + tagged)


def perfetto(processes: list[Process], path: Path) -> None:
    """Write a .pftrace file; times are integer nanoseconds."""
    with path.open("wb") as out:
        # 1 << 0 says that the sequence's state is cleared.
        out.write(_packet(_number(13, 1)))
        # The same moment on the clocks REALTIME, MONOTONIC and BOOTTIME.
        clocks = ((1, time.CLOCK_REALTIME), (3, time.CLOCK_MONOTONIC))
        moment = b"".join(
            _bytes(1, _number(1, clock_id) + _number(2, time.clock_gettime_ns(clock)))
            for clock_id, clock in (*clocks, (6, time.CLOCK_BOOTTIME))
        )
        out.write(_packet(_bytes(6, moment)))
        for process in processes:
            out.writelines(_perfetto_packets(process))


def _perfetto_packets(process: Process) -> Iterator[bytes]:
    pid = process.pid
    base = pid << 20
    about = _bytes(3, _number(1, pid) + _bytes(6, process.name))
    yield _track(base, process.name, about)
    arrows = _arrows(process, 1)
    for index, track in enumerate(process.streams):
        runs, submits, depth = (base + 4 * index + n for n in (1, 2, 3))
        parent = _number(5, base)
        yield _track(runs, track.name, parent)
        yield _track(submits, f"{track.name} submissions", parent)
        yield _track(depth, f"{track.name} depth", parent + _bytes(8, b""))
        # Packets of one track are in the order of time, so that begin and end pair up.
        for begin, end, task in _submissions(track):
            arrow = _fixed64(47, _submit_arrow(pid, index, task.position))
            yield _event(begin, _BEGIN, submits, _bytes(23, task.name) + arrow)
            yield _event(end, _END, submits)
        for task in track.slices:
            key = track.device, track.stream, task.position
            ids = [_submit_arrow(pid, index, task.position)]
            ids += [_wait_arrow(pid, number) for number in arrows.waits.get(key, ())]
            if key in arrows.of_wait:
                ids.append(_wait_arrow(pid, arrows.of_wait[key]))
            body = _bytes(23, task.name)
            body += b"".join(_fixed64(47, arrow_id) for arrow_id in ids)
            body += b"".join(_annotation(*item) for item in _details(task).items())
            yield _event(task.started, _BEGIN, runs, body)
            yield _event(task.ended, _END, runs)
            yield _event(task.ended, _COUNTER, depth, _number(30, task.depth))
    kinds = {"begin": _BEGIN, "end": _END, "point": _INSTANT}
    for index, lane in enumerate(process.lanes):
        uuid = base + (1 << 18) + index
        yield _track(uuid, lane.name, _number(5, base))
        for step, ns, span in _steps(lane):
            about = _bytes(22, span.domain) + _bytes(23, span.name)
            yield _event(ns, kinds[step], uuid, b"" if step == "end" else about)
    for index, counter in enumerate(process.counters):
        uuid = base + (1 << 19) + index
        about = _number(5, base) + _bytes(8, _bytes(6, counter.unit))
        yield _track(uuid, counter.name, about)
        for ns, value in counter.samples:
            yield _event(ns, _COUNTER, uuid, _number(30, value))
