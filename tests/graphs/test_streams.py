"""Captures of several streams: forks, joins, and replays that keep them."""

from __future__ import annotations

import pytest
import torch
from side_streams import side_streams


def fork_join(x, streams, work):
    """Let each stream do work(i) after what came before, then join them."""
    here = torch.npu.current_stream()
    results = []
    for i, stream in enumerate(streams):
        stream.wait_stream(here)
        with torch.npu.stream(stream):
            results.append(work(x, i))
    for stream in streams:
        here.wait_stream(stream)
    return results


@pytest.fixture
def streams():
    return side_streams(3)


def capture_sum(x, streams):
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        y = x * 2
        parts = fork_join(y, streams, lambda t, i: (t + i) * (i + 1))
        total = parts[0] + parts[1] + parts[2]
        del parts
    return graph, total


def expected(value: float) -> float:
    y = 2 * value
    return y + 2 * (y + 1) + 3 * (y + 2)


def test_forked_work_is_captured_and_joined(streams):
    x = torch.zeros(64, device="npu")
    graph, total = capture_sum(x, streams)

    for value in range(50):
        x.fill_(value)
        graph.replay()
        assert total.tolist() == [expected(value)] * 64

    nodes = graph.nodes()
    assert len({node["stream"] for node in nodes}) == 4
    assert sum(node["op"] == "wait" for node in nodes) == 6


def test_replays_are_queued_back_to_back(streams):
    x = torch.zeros(64, device="npu")
    graph, total = capture_sum(x, streams)
    history = torch.zeros(300, 64, device="npu")

    for i in range(300):
        x.fill_(i)
        graph.replay()
        history[i].copy_(total)

    assert history[:, 0].tolist() == [expected(i) for i in range(300)]


def test_memory_used_by_two_streams_is_not_reused_too_early(streams):
    x = torch.zeros(1 << 16, device="npu")
    side = streams[0]
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        here = torch.npu.current_stream()
        y = x + 1
        side.wait_stream(here)
        with torch.npu.stream(side):
            z = y.sin().sin().sin().sin() * 0 + y
        y.record_stream(side)
        del y
        others = [torch.full_like(x, 7) for _ in range(4)]
        here.wait_stream(side)

    for _ in range(20):
        graph.replay()
        assert z.sum().item() == 1 << 16
    del others


def test_a_failure_on_one_stream_ends_the_replay_and_no_later_one(streams):
    x = torch.rand(8, device="npu")
    index = torch.tensor([0, 1], device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        results = fork_join(x, streams, lambda t, i: t[index] + i)
        total = results[0] + results[1] + results[2]
    index.fill_(99)

    graph.replay()
    # The stream that waits for the others says, too, what has failed, and where.
    known = (
        r"node \d+, aten::index\S*, captured at .*test_streams.py:\d+.*out of bounds"
    )
    for stream in [torch.npu.current_stream(), *streams]:
        with pytest.raises((IndexError, RuntimeError), match=f"(?s){known}"):
            stream.synchronize()
    for stream in [torch.npu.current_stream(), *streams]:
        torch.npu.clear_error(stream)
    index.fill_(0)
    graph.replay()

    assert torch.allclose(total.cpu(), (3 * x[index] + 3).cpu())
