"""A timeline as JSON for chrome://tracing, which is also read back to be merged."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from npu_dispatch.observe.trace.job import HostClock
from npu_dispatch.observe.trace.trace_file import TraceError
from npu_dispatch.observe.trace.tracks import (
    Call,
    Counter,
    Host,
    Joins,
    Lane,
    Process,
    Row,
    Slice,
    Span,
    StreamTrack,
    began_ns,
    events,
)

__all__ = ["chrome_json", "load"]

Json = dict[str, Any]
_ARROWS = {"submit": "submit", "wait": "wait", "collective": "same collective"}
_PHASES = {"slice": "X", "begin": "B", "end": "E", "point": "i", "value": "C"}
_STREAM = re.compile(r"npu:(\d+) stream (\d+)")
_LANE = re.compile(r"(?:thread (\d+)|npu:(\d+) stream (\d+)) ranges(?: \((\d+)\))?")
_RANK = re.compile(r"^rank \d+(?: on \S+)?: ")  # which job.py writes
_NUMBER = re.compile(r"npu:(\d+) stream (\d+) number (\d+)")


def chrome_json(
    processes: list[Process], path: Path, clocks: Sequence[HostClock] = ()
) -> None:
    """Write the format of chrome://tracing.

    Times are microseconds, with three decimals, since the first event of all;
    `otherData` has that event's time on CLOCK_MONOTONIC, of the first of `clocks`
    where there are some.
    """
    joins = Joins(processes)
    origin = began_ns(processes)
    about: Json = {"origin_ns": origin}
    if clocks:
        about["clocks"] = [clock.text for clock in clocks]
    about["processes"] = {p.pid: _about(p) for p in processes if p.host}
    head = {"displayTimeUnit": "ns", "otherData": about}
    with path.open("w") as out:
        out.write(json.dumps(head)[:-1] + ',"traceEvents":[\n')
        separator = ""
        for process in processes:
            for event in _encoded(process, origin, joins):
                out.write(separator + json.dumps(event, separators=(",", ":")))
                separator = ",\n"
        out.write("\n]}\n")


def _about(process: Process) -> Json:
    """Return what load() needs of a process besides its events."""
    assert process.host
    moved = {"moved_by_ns": process.moved_by_ns}
    return {"rank": process.rank, **asdict(process.host), **moved}


def _encoded(process: Process, origin: int, joins: Joins) -> Iterator[Json]:
    def label(kind: str, tid: int, **args: Any) -> Json:
        return {"ph": "M", "pid": process.pid, "tid": tid, "name": kind, "args": args}

    def us(ns: int) -> float:
        return (ns + process.moved_by_ns - origin) / 1e3

    yield label("process_name", 0, name=process.name)
    if process.rank is not None:
        yield label("process_sort_index", 0, sort_index=process.rank)
    for event in events(process, joins):
        if isinstance(event, Row):
            if not event.unit:
                yield label("thread_name", event.number, name=event.name)
            continue
        row = event.row
        where = {"pid": process.pid, "tid": row.below if row.unit else row.number}
        more: Json = {"name": event.name}
        if event.kind == "slice":
            more["dur"] = (event.ended - event.ns) / 1e3
        elif event.kind == "value":
            more = {"name": row.name, "args": {row.unit: event.value}}
        else:
            more["cat"] = event.domain
            more |= {"s": "t"} if event.kind == "point" else {}
        if event.notes is not None:
            more["args"] = event.notes
        yield {"ph": _PHASES[event.kind], **where, "ts": us(event.ns), **more}
        for kind, number, phase, ns in event.arrows:
            arrow = {"id": number, "cat": kind, "name": _ARROWS[kind]}
            enclosing = {} if phase == "s" else {"bp": "e"}
            yield {"ph": phase, **where, "ts": us(ns), **arrow, **enclosing}


def load(paths: Iterable[Path]) -> list[Process]:
    """Return the processes in files, and in folders of files.

    Raises TraceError for a file that is no timeline of ours in Chrome's format.
    """
    files: list[Path] = []
    for path in paths:
        inside = sorted(path.iterdir()) if path.is_dir() else [path]
        files += [file for file in inside if not file.name.startswith(".")]
    found = [process for file in files for process in _load(file)]
    if not found:
        raise TraceError("no timeline to merge: save some with npu-dispatch trace")
    return found


def _load(path: Path) -> list[Process]:
    try:
        read = json.loads(path.read_bytes())
        about, events = read["otherData"], read["traceEvents"]
        by_process: dict[int, list[Json]] = defaultdict(list)
        for event in events:
            by_process[event["pid"]].append(event)
        return [
            _process(pid, about["origin_ns"], about["processes"].get(str(pid)), mine)
            for pid, mine in by_process.items()
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TraceError(
            f"{path}: expected a timeline that npu-dispatch trace -o NAME.json has "
            f"written, found none ({type(error).__name__}: {error})"
        ) from None


def _process(
    pid: int, origin: int, about: dict[str, Any] | None, events: list[Json]
) -> Process:
    moved = about["moved_by_ns"] if about else 0

    def ns(us: float) -> int:
        return round(us * 1e3) + origin - moved

    names: dict[int, str] = {}
    process = Process(pid, f"process {pid}", [])
    counters: dict[str, Counter] = {}
    of_row: dict[int, list[Json]] = defaultdict(list)
    for event in events:
        if event["ph"] == "M" and event["name"] == "process_name":
            process.name = _RANK.sub("", event["args"]["name"])
        elif event["ph"] == "M" and event["name"] == "thread_name":
            names[event["tid"]] = event["args"]["name"]
        elif event["ph"] == "C" and event["tid"] == 0:
            [(unit, value)] = event["args"].items()
            counter = counters.setdefault(event["name"], Counter(event["name"], unit))
            counter.samples.append((ns(event["ts"]), value))
        else:
            of_row[event["tid"]].append(event)
    process.counters = list(counters.values())
    for row, name in names.items():
        if stream := _STREAM.fullmatch(name):
            tasks, depths = (
                [event for event in of_row[row] if event["ph"] == kind] for kind in "XC"
            )
            both = zip(tasks, depths, strict=True)
            slices = [_slice(task, depth["args"]["tasks"], ns) for task, depth in both]
            device, number = map(int, stream.groups())
            process.streams.append(StreamTrack(device, number, slices))
        elif lane := _LANE.fullmatch(name):
            process.lanes.append(_lane(lane, of_row[row], ns))
    if about:
        host = about["name"], about["boot"], about["unix_offset_ns"]
        process.rank, process.host = about["rank"], Host(*host)
    return process


def _slice(event: Json, depth: int, ns: Any) -> Slice:
    args, started = event["args"], ns(event["ts"])
    number = _NUMBER.fullmatch(args.get("waited_for", ""))
    call = None
    if "seq" in args:
        call = Call(
            args["group"],
            args["group_token"],
            args["seq"],
            args["kind"] == "message",
            args["bytes"],
        )
    device, stream, task = map(int, number.groups()) if number else (0, 0, 0)
    return Slice(
        name=event["name"],
        position=args["task"],
        submitted=started - args["queued_ns"],
        started=started,
        ended=started + round(event["dur"] * 1e3),
        depth=depth,
        outcome=args["outcome"],
        waited_for=(device, stream, task) if number else None,
        line=args.get("line", ""),
        call=call,
    )


def _lane(found: re.Match[str], events: list[Json], ns: Any) -> Lane:
    thread, device, stream, index = found.groups()
    place = (-1, int(thread)) if thread else (int(device), int(stream))
    spans: list[Span] = []
    inside: list[Json] = []

    def add(event: Json, ended: int | None) -> None:
        told = event["name"], event["cat"], 0
        spans.append(Span(*told, *place, ns(event["ts"]), ended))

    for event in events:
        if event["ph"] == "i":
            add(event, ns(event["ts"]))
        elif event["ph"] == "B":
            inside.append(event)
        elif event["ph"] == "E" and inside:
            add(inside.pop(), ns(event["ts"]))
    for event in inside:
        add(event, None)
    spans.sort(key=lambda span: (span.began, -(span.ended or 1 << 63)))
    return Lane(*place, int(index or 1) - 1, spans)
