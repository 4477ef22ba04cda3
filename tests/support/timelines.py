"""What is in the files of timelines, in both formats."""

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from perfetto.protos.perfetto.trace import perfetto_trace_pb2

from npu_dispatch.observe.trace import trace
from npu_dispatch.observe.trace.tracks import Process


def traced_program(folder: Path, code: str) -> list[Process]:
    """Run a program to its end, and return its processes' timelines."""
    script = folder / "program.py"
    script.write_text(code)
    status, processes = trace.of_command([sys.executable, str(script)])
    assert status == 0
    return processes


def chrome(processes: list[Process], folder: Path) -> dict[str, Any]:
    path = folder / "timeline.json"
    list(trace.save(processes, path))
    found: dict[str, Any] = json.loads(path.read_text())
    return found


class Perfetto:
    """The file of some processes: by the name of the track, in the file's order."""

    def __init__(self, processes: list[Process], folder: Path) -> None:
        path = folder / "timeline.pftrace"
        list(trace.save(processes, path))
        packets = perfetto_trace_pb2.Trace.FromString(path.read_bytes()).packet
        described = [p.track_descriptor for p in packets if p.track_descriptor.uuid]
        self.tracks = {track.uuid: track for track in described}
        assert len(self.tracks) == len(described), "two tracks have one number"
        self.slices: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
        self.instants: dict[str, list[tuple[str, int]]] = defaultdict(list)
        self.counters: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self.notes: dict[str, list[dict[str, int]]] = defaultdict(list)
        self.flows: dict[int, list[int]] = defaultdict(list)  # to tracks
        self.open: dict[int, list[tuple[str, int]]] = defaultdict(list)
        for packet in packets:
            if packet.HasField("track_event"):
                self._add(packet.track_event, packet.timestamp)

    def _add(self, event: Any, at: int) -> None:
        name = self.tracks[event.track_uuid].name
        for flow in event.flow_ids:
            self.flows[flow].append(event.track_uuid)
        if event.debug_annotations:
            notes = {n.name: n.int_value for n in event.debug_annotations}
            self.notes[name].append(notes)
        if event.type == event.TYPE_COUNTER:
            self.counters[name].append((at, event.counter_value))
        elif event.type == event.TYPE_INSTANT:
            self.instants[name].append((event.name, at))
        elif event.type == event.TYPE_SLICE_BEGIN:
            self.open[event.track_uuid].append((event.name, at))
        elif event.type == event.TYPE_SLICE_END:
            begun, since = self.open[event.track_uuid].pop()
            self.slices[name].append((begun, since, at))
