"""A timeline as JSON for chrome://tracing, which is also read back to be merged."""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from npu_dispatch.observe.segment.folders import files_in
from npu_dispatch.observe.segment.values import fitted
from npu_dispatch.observe.trace.job import HostClock
from npu_dispatch.observe.trace.trace_file import TraceError
from npu_dispatch.observe.trace.tracks import Joins, Process, Row, began_ns, events

Json = dict[str, Any]
_ARROWS = {"submit": "submit", "wait": "wait", "collective": "same collective"}
_PHASES = {"slice": "X", "begin": "B", "end": "E", "point": "i", "value": "C"}
_RANK = re.compile(r"^rank \d+(?: on \S+)?: ")  # which job.py writes
_MOST_BYTES = 1 << 30  # of what a file holds


def chrome_json(
    processes: list[Process], path: Path, clocks: Sequence[HostClock] = ()
) -> None:
    """Write the format of chrome://tracing.

    Times are microseconds, with three decimals, since the first event of all;
    `otherData` has that event's time on CLOCK_MONOTONIC, of the first of `clocks`
    where there are some, and all of it once more, for load().
    """
    joins = Joins(processes)
    origin = began_ns(processes)
    about: Json = {"origin_ns": origin}
    if clocks:
        about["clocks"] = [clock.text for clock in clocks]
    about["npu_dispatch"] = _packed(processes)
    head = {"displayTimeUnit": "ns", "otherData": about}
    with path.open("w") as out:
        out.write(json.dumps(head)[:-1] + ',"traceEvents":[\n')
        separator = ""
        for process in processes:
            for event in _encoded(process, origin, joins):
                out.write(separator + json.dumps(event, separators=(",", ":")))
                separator = ",\n"
        out.write("\n]}\n")


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
    found = [process for file in files_in(paths) for process in _load(file)]
    if not found:
        raise TraceError("no timeline to merge: save some with npu-dispatch trace")
    return found


def _load(path: Path) -> list[Process]:
    try:
        return _unpacked(json.loads(path.read_bytes())["otherData"]["npu_dispatch"])
    except (ValueError, KeyError, TypeError, zlib.error) as error:
        raise TraceError(
            f"{path}: expected a timeline that npu-dispatch trace -o NAME.json has "
            f"written, found none ({type(error).__name__}: {error})"
        ) from None


def _packed(processes: list[Process]) -> str:
    """Return the processes as text, for load()."""

    def values(one: Any) -> list[Any]:
        return [getattr(one, field.name) for field in fields(one)]

    text = json.dumps(processes, default=values, separators=(",", ":"))
    return b64encode(zlib.compress(text.encode())).decode()


def _unpacked(packed: str) -> list[Process]:
    data = zlib.decompressobj().decompress(b64decode(packed), _MOST_BYTES)
    found: list[Process] = fitted(list[Process], json.loads(data), "a timeline")
    # As they were before as_one_job().
    return [replace(p, name=_RANK.sub("", p.name), moved_by_ns=0) for p in found]
