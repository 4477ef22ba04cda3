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

from npu_dispatch.observe.trace.job import HostClock
from npu_dispatch.observe.trace.tracks import Joins, Process, Row, began_ns, events

_SEQUENCE = 1
_MONOTONIC = BuiltinClock.BUILTIN_CLOCK_MONOTONIC
_CLOCKS = {
    BuiltinClock.BUILTIN_CLOCK_REALTIME: time.CLOCK_REALTIME,
    _MONOTONIC: time.CLOCK_MONOTONIC,
    BuiltinClock.BUILTIN_CLOCK_BOOTTIME: time.CLOCK_BOOTTIME,
}
_KINDS = {
    "slice": TrackEvent.Type.TYPE_SLICE_BEGIN,
    "begin": TrackEvent.Type.TYPE_SLICE_BEGIN,
    "end": TrackEvent.Type.TYPE_SLICE_END,
    "point": TrackEvent.Type.TYPE_INSTANT,
    "value": TrackEvent.Type.TYPE_COUNTER,
}
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
            began_ns(processes),
            _KINDS["point"],
            _CLOCKS_TRACK,
            name=clock.text,
            debug_annotations=[_note(*item) for item in notes.items()],
        )
    joins = Joins(processes)
    for process in processes:
        yield from _of_process(process, joins)


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
    base, moved = process.pid << 20, process.moved_by_ns
    about = {"pid": process.pid, "process_name": process.name}
    yield _track(base, process.name, process=about)
    for event in events(process, joins):
        if isinstance(event, Row):
            unit = {"counter": {"unit_name": event.unit}} if event.unit else {}
            yield _track(base + event.number, event.name, parent_uuid=base, **unit)
            continue
        more: dict[str, Any] = {}
        if event.kind == "value":
            more["counter_value"] = event.value
        elif event.kind != "end":
            more["name"] = event.name
            more["categories"] = [event.domain] if event.domain else []
            more["flow_ids"] = [arrow.id for arrow in event.arrows]
            notes = event.notes or {}
            more["debug_annotations"] = [_note(*item) for item in notes.items()]
        track = base + event.row.number
        yield _event(event.ns + moved, _KINDS[event.kind], track, **more)
        if event.kind == "slice":
            yield _event(event.ended + moved, _KINDS["end"], track)
