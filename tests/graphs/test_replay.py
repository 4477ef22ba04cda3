"""A replay computes what the captured code computes, as often as one likes."""

import gc

import pytest
import torch
import torch.nn.functional as F
from side_streams import side_streams
from torch import nn

from tests.graphs.captured import captured


def test_each_replay_reads_views_of_many_dimensions_as_the_tasks_before_left_them():
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


OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01, "capturable": True}),
    "fused": (torch.optim.AdamW, {"lr": 0.01, "fused": True}),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_training_step_gives_the_weights_of_eager(optimizer):
    kind, options = OPTIMIZERS[optimizer]

    def make():
        torch.manual_seed(0)
        parts = [nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3)]
        model = nn.Sequential(*parts).npu()
        return model, kind(model.parameters(), **options)

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


def test_what_a_graph_freed_is_not_given_to_others():
    x = torch.zeros(1000, device="npu")
    graph, y = captured(lambda: x + 1 + 1 + 1)  # two results in between

    with torch.npu.stream(torch.npu.graph.capture_stream_of(0)):
        others = [torch.full((1000,), 9.0, device="npu") for _ in range(20)]
        graph.replay()
        torch.npu.synchronize()

    assert all(t.sum().item() == 9000 for t in others)
    assert y.sum().item() == 3000


def test_reset_in_flight_lets_the_replay_finish():
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


def test_an_empty_capture_has_no_node_and_replays():
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


def test_the_memory_of_a_graph_that_is_gone_goes_back():
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


def test_timing_events_are_nodes():
    x = torch.rand(100, 100, device="npu")
    before, begin, end = (torch.npu.Event(enable_timing=True) for _ in range(3))

    def work():
        begin.record()
        y = x @ x
        end.record()
        return y

    before.record()
    graph, _ = captured(work)
    assert not end.query()
    times = [0.0]
    for _ in range(2):
        graph.replay()
        torch.npu.synchronize()
        assert end.query() and begin.elapsed_time(end) > 0
        times.append(before.elapsed_time(end))
    assert times == sorted(set(times))


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
    def work():
        return sum(fork_join(x * 2, streams, lambda t, i: (t + i) * (i + 1)))

    return captured(work)


def expected(value):
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
    work = lambda t, i: t[index] + i  # noqa: E731
    graph, total = captured(lambda: sum(fork_join(x, streams, work)))
    index.fill_(99)

    graph.replay()
    # The stream that waits for the others says, too, what has failed, and where.
    known = r"node \d+, aten::index\S*, captured at .*test_replay.py:\d+.*out of bounds"
    for stream in [torch.npu.current_stream(), *streams]:
        with pytest.raises((IndexError, RuntimeError), match=f"(?s){known}"):
            stream.synchronize()
    for stream in [torch.npu.current_stream(), *streams]:
        torch.npu.clear_error(stream)
    index.fill_(0)
    graph.replay()

    assert torch.allclose(total.cpu(), (3 * x[index] + 3).cpu())
