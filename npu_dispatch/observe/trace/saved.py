"""Read back timelines that were saved in Chrome's format, to merge those of a job."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from npu_dispatch.observe.trace.marks import Lane, Span
from npu_dispatch.observe.trace.trace_file import TraceError
from npu_dispatch.observe.trace.tracks import (
    Call,
    Counter,
    Host,
    Process,
    Slice,
    StreamTrack,
)

__all__ = ["load"]

Event = dict[str, Any]
_STREAM = re.compile(r"npu:(\d+) stream (\d+)")
_LANE = re.compile(r"(?:thread (\d+)|npu:(\d+) stream (\d+)) ranges(?: \((\d+)\))?")
_RANK = re.compile(r"^rank \d+(?: on \S+)?: ")  # which job.py writes
_NUMBER = re.compile(r"npu:(\d+) stream (\d+) number (\d+)")


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
        by_process: dict[int, list[Event]] = defaultdict(list)
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
    pid: int, origin: int, about: dict[str, Any] | None, events: list[Event]
) -> Process:
    moved = about["moved_by_ns"] if about else 0

    def ns(us: float) -> int:
        return round(us * 1e3) + origin - moved

    names: dict[int, str] = {}
    process = Process(pid, f"process {pid}", [])
    counters: dict[str, Counter] = {}
    of_row: dict[int, list[Event]] = defaultdict(list)
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
            slices = _slices(of_row[row], ns)
            device, number = map(int, stream.groups())
            process.streams.append(StreamTrack(device, number, slices))
        elif lane := _LANE.fullmatch(name):
            process.lanes.append(_lane(lane, of_row[row], ns))
    if about:
        host = about["name"], about["boot"], about["unix_offset_ns"]
        process.rank, process.host = about["rank"], Host(*host)
    return process


def _slices(events: list[Event], ns: Any) -> list[Slice]:
    depths = [e["args"]["tasks"] for e in events if e["ph"] == "C"]
    tasks = [event for event in events if event["ph"] == "X"]
    return [
        _slice(event, depth, ns) for event, depth in zip(tasks, depths, strict=True)
    ]


def _slice(event: Event, depth: int, ns: Any) -> Slice:
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


def _lane(found: re.Match[str], events: list[Event], ns: Any) -> Lane:
    thread, device, stream, index = found.groups()
    place = (-1, int(thread)) if thread else (int(device), int(stream))
    spans: list[Span] = []
    inside: list[Event] = []

    def add(event: Event, ended: int | None) -> None:
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
