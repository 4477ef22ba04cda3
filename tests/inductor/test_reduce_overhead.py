"""mode="reduce-overhead": functions replay their own graphs.

Results that are held: test_held.py; which graphs there are: graphs/test_replays.py.
"""

import copy
import gc

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.utils import counters

from npu_dispatch.observe.segment import StatsReader, segment_file
from tests.graphs.captured import captured


def tasks():
    """Return how many tasks the current stream has been given."""
    torch.npu.synchronize()
    stream = torch.npu.current_stream()
    with StatsReader(segment_file()) as reader:
        recent = reader.recent(stream.device_index, stream.stream_id)
    return max(task.task for task in recent)


def tasks_of(call):
    before = tasks()
    call()
    return tasks() - before


def layers():
    torch.manual_seed(0)
    deep = [nn.Sequential(nn.Linear(16, 16), nn.ReLU()) for _ in range(6)]
    return nn.Sequential(*deep)


def test_a_call_is_a_copy_and_a_replay():
    cpu = layers()
    npu = copy.deepcopy(cpu).npu()
    compiled = torch.compile(npu, mode="reduce-overhead")

    with torch.no_grad():
        for i in range(5):
            x = torch.randn(8, 16)
            here = x.npu()
            given = tasks_of(lambda x=here: compiled(x))
            torch.testing.assert_close(compiled(here).cpu(), cpu(x))
            if i > 1:
                assert given == 2, "the copy of the input, and the graph"


def test_each_training_step_replays_its_forward_and_its_backward():
    # Backward overwrites what forward has saved, which nobody else holds.
    torch.manual_seed(0)
    cpu = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6))
    npu = copy.deepcopy(cpu).npu()
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (cpu, npu)]
    skips = counters["inductor"]["cudagraph_skips"]

    def loss(model, x):
        return model(x).square().mean()

    replayed = torch.compile(loss, mode="reduce-overhead")

    def step(x):
        for f, model, place in ((loss, cpu, "cpu"), (replayed, npu, "npu")):
            model.zero_grad()
            f(model, x.to(place)).backward()
        for optimizer in optimizers:
            optimizer.step()

    given = [tasks_of(lambda: step(torch.randn(32, 6))) for _ in range(8)]

    assert counters["inductor"]["cudagraph_skips"] == skips
    assert given[-1] == given[-3] <= given[0] / 2
    for mine, want in zip(npu.parameters(), cpu.parameters(), strict=True):
        torch.testing.assert_close(mine.detach().cpu(), want.detach())


def test_parameters_that_move_are_read_where_they_are():
    model = nn.Linear(4, 4, bias=False).npu()
    compiled = torch.compile(model, mode="reduce-overhead")
    x = torch.eye(4).npu()
    with torch.no_grad():
        for i in range(12):
            if i % 3 == 2:
                model.weight.data = torch.full((4, 4), float(i), device="npu")
            model.weight.add_(1)
            assert torch.equal(compiled(x).cpu(), model.weight.t().cpu())


def test_buffers_changed_in_place_are_the_callers():
    def function(x, total):
        total.add_(x)
        return total * 2

    compiled = torch.compile(function, mode="reduce-overhead")
    total = torch.zeros(5).npu()
    for i in range(1, 6):
        y = compiled(torch.ones(5).npu(), total)
        assert total.tolist() == [float(i)] * 5
        assert y.tolist() == [2.0 * i] * 5


def test_replays_continue_the_random_sequence():
    def function(x):
        return F.dropout(x, 0.5) + torch.rand_like(x)

    x = torch.ones(200).npu()

    def draw(mode):
        compiled = torch.compile(function, mode=mode)
        compiled(x)
        torch.manual_seed(4)
        return [compiled(x).tolist() for _ in range(5)]

    want = draw("default")
    torch._dynamo.reset()

    assert draw("reduce-overhead") == want
    assert len({tuple(values) for values in want}) == 5


def test_memory_of_many_shapes_is_bounded_and_reported():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 256)).npu()
    compiled = torch.compile(model, mode="reduce-overhead", dynamic=True)
    counters.clear()

    def run(sizes):
        with torch.no_grad():
            for _ in range(3):
                for n in sizes:
                    x = torch.randn(n, 16, device="npu")
                    torch.testing.assert_close(compiled(x), model(x))
        gc.collect()
        torch.npu.empty_cache()
        return torch.npu.memory_reserved()

    some = run(range(1000, 1032))
    assert not counters["inductor"]["cudagraph_skips"]
    more = run(range(1000, 1050))

    # A segment more, for results that are larger than those of graphs given up.
    assert more - some <= 20 << 20
    assert counters["inductor"]["cudagraph_skips"] == 1


def test_on_another_stream_and_inside_a_capture():
    compiled = torch.compile(lambda x: x.sin() * 2, mode="reduce-overhead")
    x = torch.randn(6)
    want, here = x.sin() * 2, x.npu()
    torch.npu.synchronize()
    for _ in range(3):
        torch.testing.assert_close(compiled(here).cpu(), want)
    side = torch.npu.Stream()
    with torch.npu.stream(side):
        for _ in range(3):
            torch.testing.assert_close(compiled(here).cpu(), want)
    graph, y = captured(lambda: compiled(here))
    here.fill_(1)
    graph.replay()
    torch.testing.assert_close(y.cpu(), torch.ones(6).sin() * 2)


@pytest.mark.parametrize("device", ["cpu", "mixed"])
def test_what_has_nodes_on_the_host_runs_as_by_default(device):
    def function(x, y):
        return (x.sin() + 1) + (y * 2).to(x.device)

    x, y = torch.randn(3), torch.randn(3)
    compiled = torch.compile(function, mode="reduce-overhead")
    for _ in range(3):
        here = x if device == "cpu" else x.npu()
        torch.testing.assert_close(compiled(here, y).cpu(), function(x, y))


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_change_of_what_backward_needs_is_noticed(mode):
    compiled = torch.compile(torch.exp, mode=mode)
    x = torch.ones(5, device="npu", requires_grad=True)
    for _ in range(4):
        y = compiled(x)
        with torch.no_grad():
            y.mul_(100)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_the_backend_of_cuda_skips_npu_graphs_whichever_is_imported_first(python):
    code = """
import sys, torch, npu_dispatch.inductor
npu_dispatch.inductor.register()
assert "torch._dynamo.backends.cudagraphs" not in sys.modules
layer = torch.nn.Linear(3, 3).npu()
compiled = torch.compile(lambda x: layer(x).sin(), backend="cudagraphs")
x = torch.ones(3, 3, device="npu")
for _ in range(2):
    compiled(x).sum().backward()
torch.testing.assert_close(compiled(x), layer(x).sin())
print(torch._dynamo.utils.counters["inductor"]["cudagraph_skips"])
"""
    assert python(code).stdout == "1\n"
