"""Tracks made of the records of a process's trace file and of its collectives.

The log and the trace are written apart. A call begins and ends within its task, on the
same stream and under the same name.

A range has one span on the thread that opened it, and one on the stream it was opened
with. Ranges may overlap without one being inside the other, which slices of one track
must not, so such ranges get further lanes.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any

from npu_dispatch.observe.segment.collectives import LoggedCollective, LoggedTensor
from npu_dispatch.observe.segment.layout import CALL, MARK_END, MARK_POINT
from npu_dispatch.observe.trace import trace_file
from npu_dispatch.observe.trace.tracks import Call, Lane, Slice, Span, StreamTrack

PREFIX = "hccl:"  # of the names of such tasks
# The trace's times are made of ticks, by a rate that was measured.
_OFF_NS = 50_000
_ITEM = {
    **dict.fromkeys(("Short", "Half", "BFloat16", "UInt16"), 2),
    **dict.fromkeys(("Int", "Float", "UInt32", "ComplexHalf"), 4),
    **dict.fromkeys(("Long", "Double", "UInt64", "ComplexFloat"), 8),
    "ComplexDouble": 16,
}  # of the others, an element is a byte
_started = attrgetter("started_ns")


class Calls:
    """The calls that one process has begun, for its tasks to be looked up."""

    def __init__(self, calls: Iterable[LoggedCollective]) -> None:
        self._of: dict[tuple[int, int, str], list[LoggedCollective]]
        self._of = defaultdict(list)
        for call in sorted(calls, key=_started):
            if call.started_ns:
                self._of[call.device, call.stream, call.name].append(call)

    def of(
        self, device: int, stream: int, name: str, started: int, ended: int
    ) -> Call | None:
        """Return what a task was; None where it was none, or is not in the log."""
        if not name.startswith(PREFIX):
            return None
        short = name.removeprefix(PREFIX)[: CALL.room("name")]
        calls = self._of.get((device, stream, short), [])
        first = bisect_left(calls, started - _OFF_NS, key=_started)
        near = calls[first : bisect_right(calls, ended, key=_started)]
        if not near:
            return None
        best = min(near, key=lambda call: abs(call.started_ns - started))
        return Call(
            group=best.group.title,
            token=best.group.token,
            seq=best.seq,
            is_message=best.is_message,
            bytes=_bytes(best.tensors),
        )


def _bytes(tensors: Iterable[LoggedTensor]) -> int:
    """Return how much is read, or written where that is more."""
    sums = [0, 0]
    for t in tensors:
        sums[t.is_output] += math.prod(t.sizes) * _ITEM.get(t.dtype, 1)
    return max(sums)


def stream_track(
    file: trace_file.TraceFile,
    ring: trace_file.Ring,
    records: Any,
    names: Mapping[int, str],
    since_ns: int,
    calls: Calls,
) -> StreamTrack:
    times = (file.to_ns(records[name]) for name in ("submitted", "started", "ended"))
    rows = zip(records.tolist(), *(part.tolist() for part in times), strict=True)
    slices = []
    for row, submitted, started, ended in rows:
        if ended < since_ns:
            continue
        position, _, _, _, number, stream, name, depth, line, device, kind, outcome = (
            row
        )
        slices.append(
            Slice(
                name=names.get(name, "?"),
                position=position,
                submitted=submitted,
                started=started,
                ended=ended,
                depth=depth,
                outcome=trace_file.OUTCOMES[outcome],
                waited_for=(
                    (device, stream, number)
                    if trace_file.KINDS[kind] == "wait"
                    else None
                ),
                line=names.get(line, ""),
                call=calls.of(
                    ring.device, ring.stream, names.get(name, ""), started, ended
                ),
            )
        )
    return StreamTrack(ring.device, ring.stream, slices, ring.lost)


def spans_of(
    file: trace_file.TraceFile, records: Any, names: Mapping[int, str], since_ns: int
) -> list[Span]:
    """Pair the marks of a trace; leave out what ended before `since_ns`."""
    moments = file.to_ns(records["started"]).tolist()
    # A graph's ranges come again under the same number when it is replayed.
    open_ranges: dict[tuple[int, int, int], list[tuple[int, Any]]] = defaultdict(list)
    found = []

    fields = ("position", "other_stream", "other_device", "kind", "name", "depth")

    def add(row: Any, began: int, ended: int | None) -> None:
        number, where, device, _, name, domain = row
        if ended is None or ended >= since_ns:
            texts = names.get(name, "?"), names.get(domain, "?")
            found.append(Span(*texts, number, device, where, began, ended))

    for row, moment in zip(records[list(fields)].tolist(), moments, strict=True):
        number, where, device, kind = row[:4]
        # On the host another thread may end a range.
        key = number, device, where if device >= 0 else 0
        if kind == MARK_POINT:
            add(row, moment, moment)
        elif kind != MARK_END:
            open_ranges[key].append((moment, row))
        elif open_ranges[key]:
            began, first = open_ranges[key].pop(0)
            add(first, began, moment)
    for left in open_ranges.values():
        for began, row in left:
            add(row, began, None)
    return found


def to_lanes(spans: list[Span], end_ns: int) -> list[Lane]:
    """Put spans into as few lanes as each place needs; open ones end at end_ns."""

    def end(span: Span) -> int:
        return max(span.began, end_ns) if span.ended is None else span.ended

    lanes: list[Lane] = []
    inside: dict[int, list[int]] = {}  # by lane, the ends of the spans open in it
    for span in sorted(spans, key=lambda span: (span.began, -end(span))):
        for lane in lanes:
            if (lane.device, lane.where) != (span.device, span.where):
                continue
            ends = inside[id(lane)]
            while ends and ends[-1] <= span.began:
                ends.pop()
            if not ends or end(span) <= ends[-1]:
                break
        else:
            same = [
                x for x in lanes if (x.device, x.where) == (span.device, span.where)
            ]
            lane = Lane(span.device, span.where, len(same), [])
            lanes.append(lane)
            inside[id(lane)] = []
        lane.spans.append(span)
        inside[id(lane)].append(end(span))
    return sorted(lanes, key=lambda lane: (lane.device, lane.where, lane.index))
