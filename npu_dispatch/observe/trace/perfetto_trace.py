"""A timeline as a protobuf for ui.perfetto.dev."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    BuiltinClock,
    Trace,
    TracePacket,
    TrackDescriptor,
    TrackEvent,
)

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

__all__ = ["perfetto"]

_SEQUENCE = 1
_MONOTONIC = BuiltinClock.BUILTIN_CLOCK_MONOTONIC
_CLOCKS = {
    BuiltinClock.BUILTIN_CLOCK_REALTIME: time.CLOCK_REALTIME,
    _MONOTONIC: time.CLOCK_MONOTONIC,
    BuiltinClock.BUILTIN_CLOCK_BOOTTIME: time.CLOCK_BOOTTIME,
}
_BEGIN = TrackEvent.Type.TYPE_SLICE_BEGIN
_END = TrackEvent.Type.TYPE_SLICE_END
_COUNTER = TrackEvent.Type.TYPE_COUNTER
_KINDS = {"begin": _BEGIN, "end": _END, "point": TrackEvent.Type.TYPE_INSTANT}
_AT_ONCE = 1000  # packets in memory
_CLOCKS_TRACK = 1  # those of processes begin with their numbers, further left


def perfetto(
    processes: list[Process], path: Path, clocks: Sequence[HostClock] = ()
) -> None:
    """Write a .pftrace file; times are integer nanoseconds."""
    packets = _packets(processes, clocks)
    with path.open("wb") as out:
        while some := list(islice(packets, _AT_ONCE)):
            out.write(Trace(packet=some).SerializeToString())


def _packets(
    processes: list[Process], clocks: Sequence[HostClock]
) -> Iterator[TracePacket]:
    yield TracePacket(
        trusted_packet_sequence_id=_SEQUENCE,
        sequence_flags=TracePacket.SequenceFlags.SEQ_INCREMENTAL_STATE_CLEARED,
    )
    # The same moment on all of them.
    now = [
        {"clock_id": number, "timestamp": time.clock_gettime_ns(clock)}
        for number, clock in _CLOCKS.items()
    ]
    yield TracePacket(
        trusted_packet_sequence_id=_SEQUENCE, clock_snapshot={"clocks": now}
    )
    if clocks:
        yield _track(_CLOCKS_TRACK, "clocks of the ranks' hosts")
    for clock in clocks:
        notes: dict[str, int | str] = {"skew_ns": clock.offset_ns, "by": clock.by}
        if clock.within_ns is not None:
            notes["within_ns"] = clock.within_ns
        yield _event(
            _first(processes),
            _KINDS["point"],
            _CLOCKS_TRACK,
            name=clock.text,
            debug_annotations=[_note(*item) for item in notes.items()],
        )
    joins = Joins(processes)
    for process in processes:
        yield from _of_process(process, joins)


def _first(processes: list[Process]) -> int:
    """Return when the first of all tasks was submitted."""
    tracks = [track for process in processes for track in process.streams]
    return min((t.submitted for track in tracks for t in track.slices), default=0)


def _track(uuid: int, name: str, **more: Any) -> TracePacket:
    return TracePacket(
        trusted_packet_sequence_id=_SEQUENCE,
        track_descriptor=TrackDescriptor(uuid=uuid, name=name, **more),
    )


def _event(ns: int, kind: TrackEvent.Type, track: int, **more: Any) -> TracePacket:
    return TracePacket(
        timestamp=ns,
        timestamp_clock_id=_MONOTONIC,
        trusted_packet_sequence_id=_SEQUENCE,
        track_event=TrackEvent(type=kind, track_uuid=track, **more),
    )


def _note(name: str, value: int | str) -> dict[str, int | str]:
    return {
        "name": name,
        "string_value" if isinstance(value, str) else "int_value": value,
    }


def _of_process(process: Process, joins: Joins) -> Iterator[TracePacket]:
    pid = process.pid
    base = pid << 20
    yield _track(base, process.name, process={"pid": pid, "process_name": process.name})
    arrows = arrows_of(process)
    for index, track in enumerate(process.streams):
        runs, submits, depth = (base + 4 * index + n for n in (1, 2, 3))
        yield _track(runs, track.name, parent_uuid=base)
        yield _track(submits, f"{track.name} submissions", parent_uuid=base)
        yield _track(depth, f"{track.name} depth", parent_uuid=base, counter={})
        # Packets of one track are in the order of time, so that begin and end pair up.
        for begin, end, task in submissions(track):
            arrow = submit_arrow(pid, index, task.position)
            yield _event(begin, _BEGIN, submits, name=task.name, flow_ids=[arrow])
            yield _event(end, _END, submits)
        for task in track.slices:
            key = track.device, track.stream, task.position
            ids = [submit_arrow(pid, index, task.position)]
            ids += [wait_arrow(pid, number) for number in arrows.waits.get(key, ())]
            if key in arrows.of_wait:
                ids.append(wait_arrow(pid, arrows.of_wait[key]))
            if joined := joins.arrow((pid, *key)):
                ids.append(joined[0])
            told = details(task) | joins.details((pid, *key))
            yield _event(
                task.started,
                _BEGIN,
                runs,
                name=task.name,
                flow_ids=ids,
                debug_annotations=[_note(*item) for item in told.items()],
            )
            yield _event(task.ended, _END, runs)
            yield _event(task.ended, _COUNTER, depth, counter_value=task.depth)
    for index, lane in enumerate(process.lanes):
        uuid = base + (1 << 18) + index
        yield _track(uuid, lane.name, parent_uuid=base)
        for step, ns, span in steps(lane):
            about: dict[str, Any] = {}
            if step != "end":
                about = {"categories": [span.domain], "name": span.name}
            yield _event(ns, _KINDS[step], uuid, **about)
    for index, counter in enumerate(process.counters):
        uuid = base + (1 << 19) + index
        unit = {"unit_name": counter.unit}
        yield _track(uuid, counter.name, parent_uuid=base, counter=unit)
        for ns, value in counter.samples:
            yield _event(ns, _COUNTER, uuid, counter_value=value)
