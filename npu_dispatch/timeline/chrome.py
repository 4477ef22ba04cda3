"""A timeline as JSON for chrome://tracing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from npu_dispatch.timeline.tracks import (
    Process,
    arrows_of,
    details,
    steps,
    submissions,
    submit_arrow,
    wait_arrow,
)

__all__ = ["chrome_json"]


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
            yield event(
                "X",
                task.started,
                runs,
                dur=(task.ended - task.started) / 1e3,
                name=task.name,
                args=details(task),
            )
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
