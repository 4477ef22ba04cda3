"""torch.accelerator.Graph, the compiler's backend, and dumps."""

from __future__ import annotations

import pytest
import torch
from torch import nn


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).npu()


def test_the_accelerators_graph():
    x = torch.zeros(4, device="npu")
    graph = torch.accelerator.Graph()
    with torch.npu.Stream(), graph:
        assert torch.npu.is_current_stream_capturing()
        assert torch.accelerator.current_stream().is_capturing()
        x.add_(1)
    assert not torch.npu.is_current_stream_capturing()
    assert x.tolist() == [0] * 4
    graph.replay()
    graph.replay()

    assert x.tolist() == [2] * 4
    assert graph.pool()[0] == 0
    graph.reset()


@pytest.fixture
def backend():
    from npu_dispatch.npu.graphs.dynamo_backend import npugraphs

    torch._dynamo.reset()
    yield npugraphs
    torch._dynamo.reset()


def test_a_compiled_function_replays_and_captures_new_shapes(backend):
    model = network()
    compiled = torch.compile(model, backend=backend, dynamic=False)
    with torch.no_grad():
        for rows in (5, 3, 5):
            for _ in range(4):
                x = torch.rand(rows, 8).npu()
                assert torch.equal(compiled(x), model(x))


def test_results_of_a_compiled_function_stay_what_they_were(backend):
    compiled = torch.compile(lambda x: x + 1, backend=backend)
    kept = [compiled(torch.full((4,), float(i), device="npu")) for i in range(12)]

    assert [k[0].item() for k in kept] == [i + 1 for i in range(12)]


def test_a_node_tells_the_bytes_of_a_copy():
    x = torch.rand(6, device="npu")
    host = torch.zeros(6).pin_memory()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        host.copy_(x, non_blocking=True)

    (copy,) = graph.nodes()

    assert [t["shape"] for t in copy["tensors"]] == [[24], [24]]
    assert copy["bytes"] == 48


def test_a_dump_tells_nodes_and_edges(tmp_path):
    a = torch.rand(4, 8, device="npu")
    # Of the other pool: an old process's next stream may be the capture's own.
    graph, side = torch.npu.NPUGraph(), torch.npu.Stream(priority=-1)
    with torch.npu.graph(graph):
        b = a * 2
        side.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(side):
            c = b + 1
        torch.npu.current_stream().wait_stream(side)
        (b @ c.T).relu()
    graph.debug_dump(str(tmp_path / "graph.dot"))

    nodes = graph.nodes()
    assert [n["op"] for n in nodes[:3]] == [
        "aten::mul.Tensor",
        "wait",
        "aten::add.Tensor",
    ]
    mul = nodes[0]
    assert mul["tensors"][0]["shape"] == [4, 8]
    assert mul["tensors"][-1]["access"] == "write"
    assert "test_ways.py:" in mul["line"]
    assert mul["bytes"] >= 2 * 4 * 8 * 4
    assert nodes[2]["after"] == [1]
    assert nodes[2]["stream"] == side.stream_id
    text = (tmp_path / "graph.dot").read_text()
    assert "n1 -> n2;" in text
    assert f'label="stream {side.stream_id}"' in text
