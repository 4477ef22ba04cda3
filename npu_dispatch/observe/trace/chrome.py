"""A timeline as JSON for chrome://tracing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from npu_dispatch.observe.trace.clocks import HostClock
from npu_dispatch.observe.trace.job import Joins
from npu_dispatch.observe.trace.tracks import (
    Process,
    arrows_of,
    details,
    steps,
    submissions,
    submit_arrow,
    wait_arrow,
)

__all__ = ["chrome_json"]


def chrome_json(
    processes: list[Process], path: Path, clocks: Sequence[HostClock] = ()
) -> None:
    """Write the format of chrome://tracing.

    Times are microseconds, with three decimals, since the first event of all;
    `otherData` has that event's time on CLOCK_MONOTONIC, of the first of `clocks`
    where there are some.
    """
    tasks = (t for p in processes for track in p.streams for t in track.slices)
    marks = (s.began for p in processes for lane in p.lanes for s in lane.spans)
    counts = (
        ns for p in processes for counter in p.counters for ns, _ in counter.samples
    )
    origin = min((*(task.submitted for task in tasks), *marks, *counts), default=0)
    about: dict[str, Any] = {"origin_ns": origin}
    if clocks:
        about["clocks"] = [clock.text for clock in clocks]
    about["processes"] = {p.pid: _about(p, clocks) for p in processes if p.host}
    head = {"displayTimeUnit": "ns", "otherData": about}
    joins = Joins(processes)
    with path.open("w") as out:
        out.write(json.dumps(head)[:-1] + ',"traceEvents":[\n')
        separator = ""
        for process in processes:
            for event in _chrome_events(process, origin, joins):
                out.write(separator + json.dumps(event, separators=(",", ":")))
                separator = ",\n"
        out.write("\n]}\n")


def _about(process: Process, clocks: Sequence[HostClock]) -> dict[str, Any]:
    """Return what saved.py needs of a process besides its events."""
    assert process.host
    by_boot = {clock.host.boot: clock.offset_ns for clock in clocks}
    # By this its times were moved, and so has to be what they are dates by.
    moved = by_boot.get(process.host.boot, 0) if process.rank is not None else 0
    return {"rank": process.rank, **asdict(process.host), "moved_by_ns": moved}


_ARROW = {"first": "s", "step": "t", "last": "f"}


def _chrome_events(
    process: Process, origin: int, joins: Joins
) -> Iterator[dict[str, Any]]:
    pid = process.pid
    arrows = arrows_of(process)

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
    if process.rank is not None:
        order = {"args": {"sort_index": process.rank}}
        yield {"ph": "M", "pid": pid, "tid": 0, "name": "process_sort_index", **order}
    for index, track in enumerate(process.streams):
        runs, submits = 2 * index + 1, 2 * index + 2
        yield label("thread_name", runs, track.name)
        yield label("thread_name", submits, f"{track.name} submissions")
        for begin, end, task in submissions(track):
            yield event("X", begin, submits, dur=(end - begin) / 1e3, name=task.name)
            arrow = {"cat": "submit", "name": "submit"}
            arrow_id = submit_arrow(pid, index, task.position)
            yield event("s", begin, submits, id=arrow_id, **arrow)
            yield event("f", task.started, runs, id=arrow_id, bp="e", **arrow)
        for task in track.slices:
            place = pid, track.device, track.stream, task.position
            yield event(
                "X",
                task.started,
                runs,
                dur=(task.ended - task.started) / 1e3,
                name=task.name,
                args=details(task) | joins.details(place),
            )
            if joined := joins.arrow(place):
                named = {"cat": "collective", "name": "same collective", "bp": "e"}
                kind = _ARROW[joined[1]]
                yield event(kind, task.started, runs, id=joined[0], **named)
            key = track.device, track.stream, task.position
            wait = {"cat": "wait", "name": "wait"}
            for number in arrows.waits.get(key, ()):
                yield event("s", task.started, runs, id=wait_arrow(pid, number), **wait)
            if key in arrows.of_wait:
                number = arrows.of_wait[key]
                yield event(
                    "f", task.ended, runs, id=wait_arrow(pid, number), bp="e", **wait
                )
            depth = {"tasks": task.depth}
            yield event("C", task.ended, runs, name=f"depth {track.name}", args=depth)
    for index, lane in enumerate(process.lanes):
        tid = 2 * len(process.streams) + 1 + index
        yield label("thread_name", tid, lane.name)
        for step, ns, span in steps(lane):
            about = {"name": span.name, "cat": span.domain}
            if step == "point":
                yield event("i", ns, tid, s="t", **about)
            else:
                yield event("B" if step == "begin" else "E", ns, tid, **about)
    for counter in process.counters:
        for ns, value in counter.samples:
            yield event("C", ns, 0, name=counter.name, args={counter.unit: value})
