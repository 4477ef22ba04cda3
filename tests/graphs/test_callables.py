"""make_graphed_callables and the backend for graphs train as eager code does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from npu_dispatch.npu.graphs.dynamo_backend import npugraphs
from tests.graphs.captured import captured

Run = Callable[[Any, list[Tensor]], Any]


def batch(seed: int) -> Tensor:
    return torch.randn(5, 8, generator=torch.Generator().manual_seed(seed))


class Two(nn.Module):
    """Two parts, which are two graphed callables on the device."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))
        self.second = nn.Sequential(nn.Linear(8, 8), nn.Sigmoid(), nn.Linear(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x)) + x

    def graphed(self) -> Two:
        x = torch.zeros(5, 8, device="npu")
        between = torch.zeros(5, 8, device="npu", requires_grad=True)
        self.npu()
        torch.npu.make_graphed_callables((self.first, self.second), ((x,), (between,)))
        return self


def same(got: Any, want: Any) -> None:
    torch.testing.assert_close(got, want, check_device=False, rtol=1e-4, atol=1e-5)


def check(run: Run) -> None:
    """Run it eagerly on cpu and with graphs, and compare all that it returns."""
    batches = [batch(i) for i in range(4)]
    want = run(Two(), batches)
    got = run(Two().graphed(), [x.npu() for x in batches])
    same(got, want)


def gradients(model: nn.Module) -> list[Tensor | None]:
    return [p.grad.clone() if p.grad is not None else None for p in model.parameters()]


def check_gradients(model: nn.Module, want: nn.Module) -> None:
    """Compare with those of the first batch, eagerly on cpu."""
    want(batch(0)).square().mean().backward()
    same(gradients(model), gradients(want))


def accumulate(model: Two, batches: list[Tensor]) -> list[Any]:
    seen = []
    for _ in range(3):
        model.zero_grad()
        for x in batches:
            model(x).square().mean().backward()
        seen.append(gradients(model))
    return seen


def zero_between(model: Two, batches: list[Tensor]) -> list[Any]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    for i, x in enumerate(batches * 2):
        loss = model(x).square().mean()
        if i % 3 == 0:
            optimizer.zero_grad(set_to_none=i % 2 == 0)
        loss.backward()
        optimizer.step()
        seen.append(gradients(model))
    return [seen, [p.detach().clone() for p in model.parameters()]]


def one_part_alone(model: Two, batches: list[Tensor]) -> list[Any]:
    for x in batches:
        model(x).square().mean().backward()
        model.second(x).sum().backward()
        model.first(x).sum().backward()
        with torch.no_grad():
            model(x)
    return gradients(model)


def in_order_of_the_calls(model: Two, batches: list[Tensor]) -> list[Any]:
    for x in batches:
        one, two = model.first(x).exp().sum(), model.second(x).exp().sum()
        one.backward()
        two.backward()
    return gradients(model)


def twice(model: Two, batches: list[Tensor]) -> list[Any]:
    for x in batches:
        loss = model(x).square().mean()
        loss.backward(retain_graph=True)
        loss.backward()
    return gradients(model)


def leaves(model: Two, batches: list[Tensor]) -> list[Any]:
    held = [x.detach().clone().requires_grad_() for x in batches]
    for x in held:
        model(x).square().mean().backward()
        model(x).sum().backward()
    inner = [x.exp() for x in held]
    for y in inner:
        y.retain_grad()
        model.second(y).square().sum().backward(retain_graph=True)
    return [[x.grad for x in held], [y.grad for y in inner]]


def asked_for(model: Two, batches: list[Tensor]) -> list[Any]:
    held = []
    for x in batches:
        loss = model(x).square().mean()
        held.append(torch.autograd.grad(loss, list(model.parameters())))
    return held


def seen_by_hooks(model: Two, batches: list[Tensor]) -> list[Any]:
    held: list[Tensor] = []
    handles = [p.register_hook(held.append) for p in model.parameters()]
    for x in batches:
        model(x).square().mean().backward()
    for handle in handles:
        handle.remove()
    # The order in which hooks of leaves are called is autograd's own affair.
    return sorted((g.cpu() for g in held), key=lambda g: (g.shape, g.sum().item()))


def taken_from_parameters(model: Two, batches: list[Tensor]) -> list[Any]:
    held = []
    for x in batches:
        model.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        held.append([p.grad for p in model.parameters()])
    return held


def taken_in_an_accumulation(model: Two, batches: list[Tensor]) -> list[Any]:
    """What holds a gradient holds what it becomes, as others are added in place."""
    model(batches[0]).square().mean().backward()
    held = [p.grad for p in model.parameters()]
    for x in batches[1:]:
        model(x).square().mean().backward()
    return held


def between_the_parts(model: Two, batches: list[Tensor]) -> list[Any]:
    held = []
    for i, x in enumerate(batches):
        between = model.first(x)
        between.retain_grad()
        (model.second(between) * i).sum().backward()
        held.append(between.grad)
    return held


def averaged_by_hooks(model: Two, batches: list[Tensor]) -> list[Any]:
    """What DistributedDataParallel does: it is put around the graphed module."""
    bucket, seen = {}, []

    def average(parameter: Tensor) -> None:
        parameter.grad.div_(2)  # as if another rank had sent zeros
        bucket[parameter] = parameter.grad

    hooks = [p.register_post_accumulate_grad_hook(average) for p in model.parameters()]
    for x in batches:
        model.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        assert all(p.grad is bucket[p] for p in model.parameters())
        seen.append(gradients(model))
    for hook in hooks:
        hook.remove()
    return seen


HELD = [averaged_by_hooks, asked_for, seen_by_hooks, taken_from_parameters]
HELD += [taken_in_an_accumulation, between_the_parts]
RUNS = [accumulate, zero_between, one_part_alone, in_order_of_the_calls, twice, *HELD]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.__name__)
def test_gradients_that_a_parameter_has_stay(run):
    check(run)


def test_gradients_that_an_input_has_stay():
    def train(model: Two, batches: list[Tensor]) -> list[Any]:
        return leaves(model.requires_grad_(), batches)

    want = train(Two(), [batch(i) for i in range(4)])
    model = Two().npu()
    parts = model.first, model.second
    sample = [torch.zeros(5, 8, device="npu", requires_grad=True) for _ in parts]
    torch.npu.make_graphed_callables(parts, tuple((x,) for x in sample))
    same(train(model, [batch(i).npu() for i in range(4)]), want)


def test_gradients_that_a_callable_passes_on_stay():
    """Those of the sum are what its backward is given, one for both inputs."""
    sample = [torch.zeros(4, device="npu", requires_grad=True) for _ in range(2)]
    add = torch.npu.make_graphed_callables(lambda a, b: a + b, tuple(sample))
    a, b = (torch.ones(4, device="npu", requires_grad=True) for _ in range(2))
    held = [torch.autograd.grad((add(a, b) * k).sum(), (a, b)) for k in (1, 2)]

    assert [[g.tolist() for g in of] for of in held] == [[[k] * 4] * 2 for k in (1, 2)]


@pytest.mark.parametrize("again", ["first", "both"])
def test_a_backward_whose_place_a_later_call_has_used_raises(again):
    model = Two().graphed()
    x, y = batch(0).npu(), batch(1).npu()
    loss = model(x).square().mean()
    with torch.no_grad():
        model(y) if again == "both" else model.first(y)

    with pytest.raises(RuntimeError, match="call backward first"):
        loss.backward()
    model.zero_grad()
    model(x).square().mean().backward()
    check_gradients(model, Two())


def test_an_overwritten_result_that_another_backward_needs_raises():
    sample = torch.zeros(5, 8, device="npu")
    features = nn.Linear(8, 8).npu().requires_grad_(False)
    features = torch.npu.make_graphed_callables(features, (sample,))
    head = nn.Linear(8, 3).npu()
    loss = F.relu(head(features(batch(0).npu()))).sum()
    features(batch(1).npu())

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def layers(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    parts = [part for _ in range(3) for part in (nn.Linear(8, 8), nn.GELU())]
    return nn.Sequential(*parts)


def of_another_callable(pool: Any, model: nn.Module) -> Callable[[], Any]:
    sample = torch.zeros(5, 8, device="npu")
    torch.npu.make_graphed_callables(model, (sample,), pool=pool)
    return lambda: model(batch(1).npu())


def of_a_graph(pool: Any, model: nn.Module) -> Callable[[], Any]:
    sample = torch.zeros(5, 8, device="npu")
    model(sample)
    graph, result = captured(lambda: model(sample), pool=pool)
    keep = (model, sample, result)
    return lambda: (graph.replay(), keep)


@pytest.mark.parametrize("other", [of_another_callable, of_a_graph])
def test_a_replay_in_the_same_pool_that_overwrites_what_backward_reads(other):
    pool = torch.npu.graph_pool_handle()
    # It frees what the callable, which is captured later, then uses.
    replay = other(pool, layers(0).npu().requires_grad_(False))
    model = layers(1).npu()
    of_another_callable(pool, model)
    x = batch(0).npu()
    loss = model(x).square().mean()
    replay()

    with pytest.raises(RuntimeError, match="graph that shares its pool"):
        loss.backward()

    replay()
    model(x).square().mean().backward()
    check_gradients(model, layers(1))


def test_a_replay_in_the_same_pool_that_overwrites_nothing_of_it():
    pool = torch.npu.graph_pool_handle()
    count = torch.zeros((), device="npu")
    graph, _ = captured(lambda: count.add_(1), pool=pool)
    model = layers(1).npu()
    of_another_callable(pool, model)
    loss = model(batch(0).npu()).square().mean()
    graph.replay()

    loss.backward()

    check_gradients(model, layers(1))


@pytest.mark.parametrize("other", [of_another_callable, of_a_graph])
def test_a_result_that_another_replay_overwrites_counts_as_changed(other):
    pool = torch.npu.graph_pool_handle()
    replay = other(pool, layers(0).npu().requires_grad_(False))
    features = nn.Linear(8, 8).npu().requires_grad_(False)
    of_another_callable(pool, features)
    weight = torch.ones(8, device="npu", requires_grad=True)
    loss = (features(batch(0).npu()) * weight).sum()
    replay()

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


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


@pytest.mark.parametrize("autocast", [False, True])
def test_a_graphed_module_trains_like_the_eager_one(autocast):
    def steps(model: nn.Module) -> tuple[list[Tensor], set[torch.dtype]]:
        dtypes = set()

        def loss_of(answer: Tensor, y: Tensor) -> Tensor:
            dtypes.add(answer.dtype)
            return F.mse_loss(answer, y)

        with amp:
            return train(model, loss_of, make_batches()), dtypes

    amp = torch.autocast("npu", torch.bfloat16, autocast, cache_enabled=False)
    expected = steps(network())
    model = network()
    with amp:
        graphed = torch.npu.make_graphed_callables(
            model, (make_batches()[0][0].clone(),), num_warmup_iters=11
        )

    assert graphed is model
    trained, dtypes = steps(graphed)
    assert dtypes == expected[1]
    assert all(map(torch.equal, trained, expected[0]))


@pytest.fixture
def backend():
    torch._dynamo.reset()
    yield npugraphs
    torch._dynamo.reset()


def test_a_model_that_the_backend_compiles_trains_like_the_eager_one(backend):
    expected = train(network(), F.mse_loss, make_batches())
    compiled = torch.compile(network(), backend=backend)
    got = train(compiled, F.mse_loss, make_batches())

    torch.testing.assert_close(got, expected)


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


def test_several_callables_one_of_them_a_function():
    batches = make_batches()
    expected = train(network(), F.mse_loss, batches)
    model = network()
    x, y = (t.clone() for t in batches[0])
    out = torch.zeros(5, 4, device="npu", requires_grad=True)
    model, loss = torch.npu.make_graphed_callables(
        (model, F.mse_loss), ((x,), (out, y))
    )

    assert all(map(torch.equal, train(model, loss, batches), expected))


def test_gradients_of_inputs_and_unused_inputs():
    sample = [torch.ones(3, device="npu", requires_grad=True) for _ in range(2)]
    graphed = torch.npu.make_graphed_callables(
        lambda a, b: (a * a).sum(), tuple(sample), allow_unused_input=True
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


def test_what_graphed_callables_cannot_take():
    x, model = torch.ones(5, 8, device="npu"), network()
    amp = torch.autocast("npu", dtype=torch.bfloat16)
    with amp, pytest.raises(RuntimeError, match="cache_enabled=False"):
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
