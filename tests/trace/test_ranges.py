"""Range markers in timelines: on their thread, and on their stream."""

from collections import defaultdict

import pytest
from timelines import Perfetto, chrome, traced_program

from npu_dispatch.observe.trace.records import to_lanes
from npu_dispatch.observe.trace.tracks import Span

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
def traced(tmp_path_factory):
    (process,) = traced_program(tmp_path_factory.mktemp("trace"), PROGRAM)
    return process


def spans(traced, name, device):
    found = [
        span
        for lane in traced.lanes
        for span in lane.spans
        if span.name == name and (lane.device, lane.where) == (span.device, span.where)
    ]
    return [span for span in found if span.device == device]


def one(traced, name, device):
    (span,) = spans(traced, name, device)
    return span


def test_a_range_is_on_its_thread_and_around_the_streams_tasks(traced):
    host, device = one(traced, "sleep", -1), one(traced, "sleep", 0)
    (stream,) = (t for t in traced.streams if t.stream == 0)
    (task,) = (t for t in stream.slices if t.name == "_sleep")

    assert host.domain == device.domain == "nvtx"
    assert device.where == 0
    # The stream was busy in it for 5 ms; the host had only to launch.
    assert device.ended - device.began >= 5_000_000
    assert host.began <= device.began and host.ended <= device.ended
    assert device.began <= task.started and task.ended <= device.ended


def test_ranges_nest_and_marks_are_moments_on_both(traced):
    for device in (-1, 0):
        step, sleep = one(traced, "step", device), one(traced, "sleep", device)
        assert step.began <= sleep.began and sleep.ended <= step.ended
        mark = one(traced, "slept", device)
        assert mark.began == mark.ended >= sleep.ended


def test_a_range_that_another_thread_ends_is_whole_and_an_open_one_is_open(traced):
    host, device = one(traced, "side", -1), one(traced, "side", 0)

    assert host.domain == "mine" and host.ended is not None
    assert device.where != 0 and device.ended - device.began >= 2_000_000
    assert one(traced, "left open", -1).ended is None


def test_each_replay_passes_through_a_captured_range(traced):
    found = spans(traced, "captured", 0)

    assert len(found) == 3
    assert all(span.ended is not None for span in found)
    # Before the device is used there is only the host.
    assert spans(traced, "before the device", 0) == []


def test_chrome_json_has_balanced_ranges(traced, tmp_path):
    events = chrome([traced], tmp_path)["traceEvents"]
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
    told = Perfetto([traced], tmp_path)
    found = {
        each
        for name, slices in told.slices.items()
        for each in slices
        if name.endswith("ranges")
    }
    found |= {(name, at, at) for all_ in told.instants.values() for name, at in all_}
    expected = {
        (span.name, span.began, span.ended)
        for lane in traced.lanes
        for span in lane.spans
        if span.ended is not None
    }
    assert found == expected


def span(began, ended, where=1):
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
from npu_dispatch.observe.segment import StatsReader, segment_file
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
