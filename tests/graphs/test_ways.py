"""torch.accelerator.Graph, what a dump tells, and an example."""

from pathlib import Path

import torch

from tests.graphs.captured import captured


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


def test_a_node_tells_the_bytes_of_a_copy():
    x, host = torch.rand(6, device="npu"), torch.zeros(6).pin_memory()
    graph, _ = captured(lambda: host.copy_(x, non_blocking=True))

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
        (b @ c.T).relu_()
    graph.debug_dump(str(tmp_path / "graph.dot"))

    nodes = graph.nodes()
    names = ["aten::mul.Tensor", "wait", "aten::add.Tensor"]
    assert [n["op"] for n in nodes[:3]] == names
    mul = nodes[0]
    assert mul["tensors"][0]["shape"] == [4, 8]
    assert mul["tensors"][-1]["access"] == "write"
    assert "test_ways.py:" in mul["line"]
    assert mul["bytes"] >= 2 * 4 * 8 * 4
    assert [n["after"] for n in nodes[:6]] == [[], [0], [1], [0, 2], [3], [4]]
    assert nodes[2]["stream"] == side.stream_id
    assert {t["access"] for t in nodes[-1]["tensors"]} == {"read-write"}
    text = (tmp_path / "graph.dot").read_text()
    assert "n1 -> n2;" in text
    assert f'label="stream {side.stream_id}"' in text


EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "graph_serve.py"


def test_serving_prints_a_histogram_per_way(python):
    done = python.run(str(EXAMPLE), "--requests", "100")

    assert done.returncode == 0, done.stderr
    for way in ("cpu, eager", "npu, eager", "npu, replay"):
        assert f"{way}: median" in done.stdout
    assert "#" in done.stdout
