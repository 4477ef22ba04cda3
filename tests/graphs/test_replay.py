"""A replay computes what the captured code computes, as often as one likes."""

from __future__ import annotations

import gc

import pytest
import torch
import torch.nn.functional as F
from torch import nn


def test_a_replay_reads_its_inputs_anew(captured):
    x = torch.zeros(4, device="npu")
    graph, y = captured(lambda: (x + 1) * 2)
    assert x.tolist() == [0] * 4, "a capture runs nothing"

    for value in (3.0, -1.0):
        x.fill_(value)
        graph.replay()

        assert y.tolist() == [(value + 1) * 2] * 4


def test_replays_are_in_order_with_other_work_of_the_stream(captured):
    x = torch.zeros(8, device="npu")
    graph, _ = captured(lambda: x.mul_(2))

    for _ in range(10):
        x.add_(1)
        graph.replay()

    assert x.tolist() == [2.0 * (2**10 - 1)] * 8


def test_each_replay_reads_views_of_many_dimensions_as_the_tasks_before_left_them(
    captured,
):
    """A state of 14 qubits, beside a chain that has nothing to do with it."""
    state, other = torch.zeros(2**14), torch.rand(128, 128)

    def step(state, other):
        state.add_(1)
        view = state.view([2] * 14)[:, 0, :, 0, :, 0, :, 0, :, 0, :, 0, :, 0]
        return view * 2, (other @ other).sin() @ other

    here = state.npu(), other.npu()
    graph, (seen, _) = captured(lambda: step(*here))
    for _ in range(40):
        graph.replay()
        expected, _ = step(state, other)

        assert torch.equal(seen.cpu(), expected)


def mlp(width: int, layers: int) -> nn.Module:
    torch.manual_seed(0)
    parts: list[nn.Module] = []
    for _ in range(layers):
        parts += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*parts)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adamw", "fused"])
def test_a_training_step_gives_the_weights_of_eager(captured, optimizer):
    def make():
        model = mlp(8, 3).npu()
        parameters = model.parameters()
        if optimizer == "adamw":
            return model, torch.optim.AdamW(parameters, lr=0.01, capturable=True)
        if optimizer == "fused":
            return model, torch.optim.AdamW(parameters, lr=0.01, fused=True)
        momentum = 0.9 if optimizer == "momentum" else 0.0
        return model, torch.optim.SGD(parameters, lr=0.1, momentum=momentum)

    def step(model, optim, x, y):
        optim.zero_grad(set_to_none=True)
        F.mse_loss(model(x), y).backward()
        optim.step()

    torch.manual_seed(1)
    batches = [(torch.rand(4, 8).npu(), torch.rand(4, 8).npu()) for _ in range(6)]
    eager, eager_optimizer = make()
    for x, y in [batches[0]] * 2 + batches:
        step(eager, eager_optimizer, x, y)

    model, optim = make()
    x, y = batches[0][0].clone(), batches[0][1].clone()
    for _ in range(2):  # makes the optimizer's state
        step(model, optim, x, y)
    graph, _ = captured(lambda: step(model, optim, x, y))
    for batch in batches:
        x.copy_(batch[0])
        y.copy_(batch[1])
        graph.replay()

    for ours, theirs in zip(model.parameters(), eager.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_random_numbers_continue_the_sequence_of_the_generator(captured):
    torch.npu.manual_seed(5)
    expected = [torch.rand(4, device="npu").tolist() for _ in range(6)]
    torch.npu.manual_seed(5)
    graph, pair = captured(
        lambda: (torch.rand(4, device="npu"), torch.rand(4, device="npu"))
    )

    drawn = []
    for _ in range(2):
        graph.replay()
        drawn += [t.tolist() for t in pair]
    drawn += [torch.rand(4, device="npu").tolist() for _ in range(2)]

    assert drawn == expected


def test_graphs_share_the_memory_of_a_pool():
    a = torch.ones(1000, device="npu")
    pool = torch.npu.graph_pool_handle()
    first, second = torch.npu.NPUGraph(), torch.npu.NPUGraph()
    with torch.npu.graph(first, pool=pool):
        b = a + 1
        c = b + 1
        freed = b.data_ptr()
        del b
    with torch.npu.graph(second, pool=first.pool()):
        d = c + 1

    first.replay()
    second.replay()

    assert first.pool() == second.pool() == pool
    assert d.data_ptr() == freed
    assert d.sum().item() == 4000


def test_what_a_graph_freed_is_not_given_to_others(captured):
    x = torch.zeros(1000, device="npu")
    graph, y = captured(lambda: x + 1 + 1 + 1)  # two results in between

    with torch.npu.stream(torch.npu.graph.capture_stream_of(0)):
        others = [torch.full((1000,), 9.0, device="npu") for _ in range(20)]
        graph.replay()
        torch.npu.synchronize()

    assert all(t.sum().item() == 9000 for t in others)
    assert y.sum().item() == 3000


def test_reset_in_flight_lets_the_replay_finish(captured):
    x = torch.zeros(1 << 20, device="npu")
    graph, y = captured(lambda: x + 1)

    graph.replay()
    graph.reset()

    assert y.sum().item() == 1 << 20
    with pytest.raises(RuntimeError, match="without a capture"):
        graph.replay()
    with torch.npu.graph(graph):
        x.add_(2)
    graph.replay()
    assert x.sum().item() == 2 << 20


def test_an_empty_capture_has_no_node_and_replays(captured):
    graph, _ = captured(lambda: None)

    graph.replay()

    assert graph.nodes() == []


def test_a_graph_that_is_kept_is_instantiated_and_replayed():
    graph, x = torch.npu.NPUGraph(keep_graph=True), torch.zeros(8, device="npu")
    with torch.npu.graph(graph):
        x.add_(1)

    graph.instantiate()
    graph.replay()

    assert x.tolist() == [1] * 8


def test_the_memory_of_a_graph_that_is_gone_goes_back(captured):
    torch.npu.synchronize()
    torch.npu.empty_cache()
    before = torch.npu.memory_reserved()
    x = torch.zeros(1 << 20, device="npu")
    graph, y = captured(lambda x=x: x + 1 + 1)
    graph.replay()
    torch.npu.empty_cache()
    assert torch.npu.memory_reserved() > before

    del y, graph, x
    gc.collect()
    torch.npu.synchronize()
    torch.npu.empty_cache()

    assert torch.npu.memory_reserved() == before


def test_an_error_of_a_replayed_kernel_names_node_and_line(captured):
    x = torch.rand(4, device="npu")
    index = torch.tensor([0, 1], device="npu")
    graph, _ = captured(lambda: x[index])
    index.fill_(9)

    graph.replay()
    with pytest.raises(IndexError, match=r"node 0, aten::index.*test_replay.py:\d+"):
        torch.npu.synchronize()
    torch.npu.clear_error()
    index.fill_(0)
    graph.replay()
    torch.npu.synchronize()


def test_timing_events_are_nodes(captured):
    x = torch.rand(100, 100, device="npu")
    begin, end = (torch.npu.Event(enable_timing=True) for _ in range(2))

    def work():
        begin.record()
        y = x @ x
        end.record()
        return y

    graph, _ = captured(work)
    for _ in range(2):
        graph.replay()
        torch.npu.synchronize()
        assert begin.elapsed_time(end) > 0
