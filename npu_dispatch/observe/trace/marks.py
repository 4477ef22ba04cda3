"""Range markers of a traced process, paired into spans that are put into lanes.

A range has one span on the thread that opened it, and one on the stream it was
opened with. Ranges may overlap without one being inside the other, which slices of
one track must not, so such ranges get further lanes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from npu_dispatch.observe.trace.trace_file import MARK_END, MARK_POINT, TraceFile
from npu_dispatch.stream_names import stream_title

__all__ = ["Lane", "Span", "spans_of", "to_lanes"]


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


def spans_of(
    file: TraceFile, records: Any, names: Mapping[int, str], since_ns: int
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
