"""make_graphed_callables, torch.accelerator.Graph and the compiler's backend."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree

import pytest
import torch
import torch.nn.functional as F
from torch import nn


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).npu()


def train(model, loss_of, batches) -> list[torch.Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in batches:
        optimizer.zero_grad(set_to_none=True)
        loss_of(model(x), y).backward()
        optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


def make_batches():
    torch.manual_seed(3)
    return [(torch.rand(5, 8).npu(), torch.rand(5, 4).npu()) for _ in range(5)]


def test_a_graphed_module_trains_like_the_eager_one():
    batches = make_batches()
    expected = train(network(), F.mse_loss, batches)
    model = network()
    graphed = torch.npu.make_graphed_callables(model, (batches[0][0].clone(),))

    assert graphed is model
    got = train(graphed, F.mse_loss, batches)

    for ours, theirs in zip(got, expected, strict=True):
        assert torch.equal(ours, theirs)


def test_several_callables_one_of_them_a_function():
    batches = make_batches()
    expected = train(network(), F.mse_loss, batches)
    model = network()
    x, y = (t.clone() for t in batches[0])
    out = torch.zeros(5, 4, device="npu", requires_grad=True)
    model, loss = torch.npu.make_graphed_callables(
        (model, F.mse_loss), ((x,), (out, y))
    )

    got = train(model, loss, batches)

    for ours, theirs in zip(got, expected, strict=True):
        assert torch.equal(ours, theirs)


def test_gradients_of_inputs_and_unused_inputs():
    def function(a, b):
        return (a * a).sum()

    sample = [torch.ones(3, device="npu", requires_grad=True) for _ in range(2)]
    graphed = torch.npu.make_graphed_callables(
        function, tuple(sample), allow_unused_input=True
    )
    a = torch.tensor([1.0, 2.0, 3.0]).npu().requires_grad_()
    b = torch.ones(3, device="npu", requires_grad=True)

    result = graphed(a, b)
    result.backward()

    assert result.item() == 14
    assert a.grad.tolist() == [2, 4, 6]
    assert b.grad is None


def test_a_module_in_the_other_training_mode_runs_eagerly():
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).npu()
    x = torch.ones(6, 4, device="npu")
    graphed = torch.npu.make_graphed_callables(model, (x.clone(),))

    graphed.eval()

    assert torch.equal(graphed(x), model[0](x))
    assert graphed(x[:2]).shape == (2, 4)


def autocast() -> torch.autocast:
    return torch.autocast("npu", dtype=torch.bfloat16, cache_enabled=False)


def test_a_graphed_module_under_autocast_trains_like_the_eager_one():
    def steps(model) -> tuple[list[torch.Tensor], list[torch.dtype]]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        dtypes = []
        for x, y in make_batches():
            optimizer.zero_grad(set_to_none=True)
            with autocast():
                answer = model(x)
                loss = F.mse_loss(answer, y)
            loss.backward()
            optimizer.step()
            dtypes.append(answer.dtype)
        return [p.detach().clone() for p in model.parameters()], dtypes

    expected, dtypes = steps(network())
    with autocast():
        graphed = torch.npu.make_graphed_callables(
            network(), (make_batches()[0][0].clone(),)
        )
    got, graphed_dtypes = steps(graphed)

    assert graphed_dtypes == dtypes == [torch.bfloat16] * 5
    for ours, theirs in zip(got, expected, strict=True):
        assert ours.dtype == torch.float32
        assert torch.equal(ours, theirs)


def test_hooks_on_gradients_see_each_replayed_gradient():
    """What DistributedDataParallel does: it is put around the graphed module."""

    def reduce(model) -> list[list[torch.Tensor]]:
        ready: list[torch.Tensor] = []
        bucket = {}

        def average(parameter: torch.Tensor) -> None:
            ready.append(parameter.grad.clone())
            parameter.grad.div_(2)  # as if another rank had sent zeros
            bucket[parameter] = parameter.grad

        hooks = [
            parameter.register_post_accumulate_grad_hook(average)
            for parameter in model.parameters()
        ]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        seen = []
        for x, y in make_batches():
            optimizer.zero_grad(set_to_none=True)
            F.mse_loss(model(x), y).backward()
            assert all(p.grad is bucket[p] for p in model.parameters())
            optimizer.step()
            seen.append(list(ready))
            ready.clear()
        seen.append([p.detach().clone() for p in model.parameters()])
        for hook in hooks:
            hook.remove()
        return seen

    expected = reduce(network())
    model = network()
    torch.npu.make_graphed_callables(
        model, (make_batches()[0][0].clone(),), num_warmup_iters=11
    )

    got = reduce(model)

    for ours, theirs in zip(got, expected, strict=True):
        for a, b in zip(
            sorted(ours, key=lambda t: t.shape),
            sorted(theirs, key=lambda t: t.shape),
            strict=True,
        ):
            assert torch.equal(a, b)


def test_what_graphed_callables_cannot_take():
    x, model = torch.ones(5, 8, device="npu"), network()
    with (
        torch.autocast("npu", dtype=torch.bfloat16),
        pytest.raises(RuntimeError, match="cache_enabled=False"),
    ):
        torch.npu.make_graphed_callables(model, (x,))
    hooked = network()
    hooked.register_forward_hook(lambda *args: None)
    with pytest.raises(RuntimeError, match="without hooks"):
        torch.npu.make_graphed_callables(hooked, (x,))
    with pytest.raises(RuntimeError, match="are tensors"):
        torch.npu.make_graphed_callables(network(), (3,))
    graphed = torch.npu.make_graphed_callables(network(), (x,))
    with pytest.raises(RuntimeError, match=r"has shape \[5, 8\]"):
        graphed(x[:2])


def test_the_accelerators_graph():
    x = torch.zeros(4, device="npu")
    graph = torch.accelerator.Graph()
    with torch.npu.Stream(), graph:
        x.add_(1)
    assert x.tolist() == [0] * 4
    graph.replay()
    graph.replay()

    assert x.tolist() == [2] * 4
    assert graph.pool()[0] == 0
    graph.reset()


def test_the_stream_says_that_it_captures():
    with torch.npu.graph(torch.npu.NPUGraph()):
        assert torch.npu.is_current_stream_capturing()
        assert torch.accelerator.current_stream().is_capturing()
    assert not torch.npu.is_current_stream_capturing()


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


def test_a_compiled_model_trains_like_the_eager_one(backend):
    batches = make_batches()
    expected = train(network(), F.mse_loss, batches)
    got = train(torch.compile(network(), backend=backend), F.mse_loss, batches)

    for ours, theirs in zip(got, expected, strict=True):
        assert torch.allclose(ours, theirs)


def test_a_dump_tells_the_bytes_of_a_copy(tmp_path):
    x = torch.rand(6, device="npu")
    host = torch.zeros(6).pin_memory()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        host.copy_(x, non_blocking=True)
    graph.debug_dump(str(tmp_path / "graph.json"))

    (copy,) = json.loads((tmp_path / "graph.json").read_text())["nodes"]

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
    for suffix in ("json", "svg", "dot", "html"):
        graph.debug_dump(str(tmp_path / f"graph.{suffix}"))

    nodes = json.loads((tmp_path / "graph.json").read_text())["nodes"]
    assert [n["op"] for n in nodes[:3]] == [
        "aten::mul.Tensor",
        "wait",
        "aten::add.Tensor",
    ]
    mul = nodes[0]
    assert mul["tensors"][0]["shape"] == [4, 8]
    assert mul["tensors"][-1]["access"] == "write"
    assert "test_callables.py:" in mul["line"]
    assert mul["bytes"] >= 2 * 4 * 8 * 4
    assert nodes[2]["after"] == [1]
    assert nodes[2]["stream"] == side.stream_id
    ElementTree.parse(tmp_path / "graph.svg")
    assert "n1 -> n2;" in (tmp_path / "graph.dot").read_text()
