"""Range markers in timelines: on their thread, and on their stream."""

from __future__ import annotations

import json
import sys
from collections import defaultdict

import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2

from npu_dispatch.timeline import trace
from npu_dispatch.timeline.marks import Span, to_lanes
from npu_dispatch.timeline.tracks import Process

PROGRAM = """
import threading, torch, npu_dispatch
nvtx, mstx = torch.npu.nvtx, torch.npu.mstx
nvtx.range_push("before the device")
nvtx.range_pop()
s = torch.npu.Stream()
x = torch.ones(64, 64, device="npu")
nvtx.range_push("step")
nvtx.range_push("sleep")
torch.npu._sleep(5_000_000)
nvtx.range_pop()
nvtx.mark("slept")
nvtx.range_pop()
number = mstx.range_start("side", s, "mine")
with torch.npu.stream(s):
    torch.npu._sleep(2_000_000)
thread = threading.Thread(target=mstx.range_end, args=(number, "mine"))
thread.start()
thread.join()
left = mstx.range_start("left open")
graph = torch.npu.NPUGraph()
with torch.npu.graph(graph):
    with nvtx.range("captured"):
        x.add_(1)
for _ in range(3):
    graph.replay()
torch.npu.synchronize()
"""


@pytest.fixture(scope="module")
def traced(tmp_path_factory) -> Process:
    script = tmp_path_factory.mktemp("trace") / "program.py"
    script.write_text(PROGRAM)
    status, (process,) = trace.of_command([sys.executable, str(script)])
    assert status == 0
    return process


def spans(traced: Process, name: str, device: int) -> list[Span]:
    found = [
        span
        for lane in traced.lanes
        for span in lane.spans
        if span.name == name and (lane.device, lane.where) == (span.device, span.where)
    ]
    return [span for span in found if span.device == device]


def one(traced: Process, name: str, device: int) -> Span:
    (span,) = spans(traced, name, device)
    return span


def test_a_range_is_on_its_thread_and_on_its_stream(traced):
    host, device = one(traced, "sleep", -1), one(traced, "sleep", 0)

    assert host.domain == device.domain == "nvtx"
    assert device.where == 0
    # The stream was busy in it for 5 ms; the host had only to launch.
    assert device.ended - device.began >= 5_000_000
    assert host.began <= device.began and host.ended <= device.ended


def test_device_times_are_those_of_the_stream_s_tasks(traced):
    (stream,) = (t for t in traced.streams if t.stream == 0)
    (task,) = (t for t in stream.slices if t.name == "_sleep")
    device = one(traced, "sleep", 0)

    assert device.began <= task.started and task.ended <= device.ended


def test_ranges_nest_on_both(traced):
    for device in (-1, 0):
        step, sleep = one(traced, "step", device), one(traced, "sleep", device)
        assert step.began <= sleep.began and sleep.ended <= step.ended


def test_a_mark_is_a_moment(traced):
    for device in (-1, 0):
        mark = one(traced, "slept", device)
        assert mark.began == mark.ended >= one(traced, "sleep", device).ended


def test_a_range_that_another_thread_ends_is_whole(traced):
    host, device = one(traced, "side", -1), one(traced, "side", 0)

    assert host.domain == "mine" and host.ended is not None
    assert device.where != 0 and device.ended - device.began >= 2_000_000


def test_before_the_device_is_used_there_is_only_the_host(traced):
    assert spans(traced, "before the device", 0) == []
    # The trace begins with the device.
    assert len(spans(traced, "before the device", -1)) <= 1


def test_a_range_that_is_open_has_no_end(traced):
    assert one(traced, "left open", -1).ended is None


def test_each_replay_passes_through_a_captured_range(traced):
    found = spans(traced, "captured", 0)

    assert len(found) == 3
    assert all(span.ended is not None for span in found)


def test_replays_have_a_task(traced):
    names = [task.name for track in traced.streams for task in track.slices]

    assert names.count("wait") < len(names)  # and reading them raised nothing


def test_chrome_json_has_balanced_ranges(traced, tmp_path):
    path = tmp_path / "t.json"
    list(trace.save([traced], path))
    events = json.loads(path.read_text())["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    open_ranges = defaultdict(list)
    found = set()
    for event in events:
        if event["ph"] == "B":
            open_ranges[event["tid"]].append((event["name"], event["ts"]))
        elif event["ph"] == "E":
            name, began = open_ranges[event["tid"]].pop()
            assert name == event["name"] and began <= event["ts"]
            found.add((names[event["tid"]], name, event["cat"]))
        elif event["ph"] == "i":
            found.add((names[event["tid"]], event["name"], event["cat"]))
        assert event.get("ts", 0) >= 0
    assert ("npu:0 stream 0 ranges", "sleep", "nvtx") in found
    assert ("npu:0 stream 0 ranges", "slept", "nvtx") in found
    assert any(place.startswith("thread") for place, *_ in found)
    assert [[n for n, _ in r] for r in open_ranges.values() if r] == [["left open"]]


def test_perfetto_has_the_same_ranges(traced, tmp_path):
    path = tmp_path / "t.pftrace"
    list(trace.save([traced], path))
    packets = perfetto_trace_pb2.Trace.FromString(path.read_bytes()).packet
    names = {
        p.track_descriptor.uuid: p.track_descriptor.name
        for p in packets
        if p.HasField("track_descriptor")
    }
    open_ranges, found = defaultdict(list), set()
    for packet in packets:
        event = packet.track_event
        if not names.get(event.track_uuid, "").endswith("ranges"):
            continue
        if event.type == event.TYPE_SLICE_BEGIN:
            open_ranges[event.track_uuid].append((event.name, packet.timestamp))
        elif event.type == event.TYPE_SLICE_END:
            name, began = open_ranges[event.track_uuid].pop()
            found.add((name, began, packet.timestamp))
        else:
            assert event.type == event.TYPE_INSTANT
            found.add((event.name, packet.timestamp, packet.timestamp))
    expected = {
        (span.name, span.began, span.ended)
        for lane in traced.lanes
        for span in lane.spans
        if span.ended is not None
    }
    assert found == expected


def span(began: int, ended: int | None, where: int = 1) -> Span:
    return Span("x", "d", 1, -1, where, began, ended)


def test_ranges_that_cross_go_to_lanes_of_their_own():
    crossing = [span(0, 10), span(5, 15), span(6, 8), span(15, 20), span(0, 3, 2)]

    lanes = to_lanes(crossing, 100)

    assert [[(s.began, s.ended) for s in lane.spans] for lane in lanes] == [
        [(0, 10), (6, 8), (15, 20)],
        [(5, 15)],
        [(0, 3)],
    ]
    assert [lane.index for lane in lanes] == [0, 1, 0]


def test_marking_costs_no_task_when_nobody_traces(python):
    code = """
import torch
from npu_dispatch.stats import StatsReader, segment_file
torch.npu.init()
def tasks():
    torch.npu.synchronize()
    with StatsReader(segment_file()) as reader:
        return sum(s.submitted for s in reader.streams())
before = tasks()
with torch.npu.nvtx.range("x"):
    torch.npu.nvtx.mark("y")
torch.npu.mstx.mark("z", torch.npu.current_stream())
print(tasks() - before)
"""
    assert python(code).stdout == "0\n"
