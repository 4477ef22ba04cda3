"""What programs change between steps reaches the next step."""

import copy
import gc
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from step_loop import Batch, Both, batches, classifier, plain_loop, twins
from torch import nn
from torch.optim import lr_scheduler

import npu_dispatch

Change = Callable[[Any, torch.optim.Optimizer], object]


class Scaled(nn.Module):
    """A layer with a scale in a list, an object, a dict of a list, and two tensors.

    One is neither a parameter nor a buffer, the other a buffer with a rate's name.
    """

    class Config:
        scale = 2.0

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(16, 4)
        self.weights = [1.0, 2.0]
        self.config = self.Config()
        self.deep = [{"scale": 1.0}]
        self.own = torch.full((4,), 1.0, device="npu")
        self.register_buffer("lr", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = self.weights[0] * self.config.scale * self.deep[0]["scale"]
        return self.layer(x) * scale * self.own * self.lr


class Chosen(nn.Module):
    """A product with one of two parameters, which is found in a dict."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = (nn.Parameter(torch.randn(16, 4)) for _ in range(2))
        self.use: dict[str, torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.use["w"]


def load_the_optimizer(optimizer: torch.optim.Optimizer) -> None:
    state = copy.deepcopy(optimizer.state_dict())
    for entry in state["state"].values():
        entry["exp_avg"].mul_(2)
    optimizer.load_state_dict(state)


def linear() -> nn.Module:
    torch.manual_seed(4)
    return nn.Linear(32, 4).npu()


# What the program does | with which model | a statement about a model m and its
# optimizer o | how many graphs there are then.
CHANGES = """
evaluates meanwhile | classifier | m.eval()(torch.ones(3, 16).npu()); m.train() | 1
loads the model | classifier | m.load_state_dict(classifier(seed=5).state_dict()) | 1
clears gradients | classifier | o.zero_grad(set_to_none=False) | 1
sets a rate | classifier | o.param_groups[0]["lr"] = torch.tensor(0.2) | 1
freezes | classifier | m[0].weight.requires_grad_(False) | 2
stops normalising | classifier | m[1].eval() | 2
loads the optimizer | classifier | load_the_optimizer(o) | 2
decays | classifier | o.param_groups[0]["weight_decay"] = 0.5 | 2
replaces an activation | classifier | m[2] = nn.Tanh() | 2
moves the data | classifier | m[3].weight.data = m[3].weight.data.clone() * 2 | 2
registers a hook | classifier | m[2].register_forward_hook(lambda m, a, y: y * 2) | 2
sets a number of a list | Scaled | m.weights[0] = 3.0 | 2
sets a number of an object | Scaled | m.config.scale = 5.0 | 2
sets a number deep inside | Scaled | m.deep[0]["scale"] = 0.5 | 2
sets a tensor | Scaled | m.own = torch.linspace(1, 2, 4).npu() | 2
replaces a buffer | Scaled | m.lr = torch.full((4,), 3.0).npu() | 2
replaces a layer | classifier | m[3] = linear() | 2
splits a group | classifier | add_group({"params": [params.pop()], "lr": 0.05}) | 2
sets what the model does not read | classifier | m.steps_so_far = 3 | 1
"""


MODELS = {model.__name__: model for model in (classifier, Scaled)}


@pytest.mark.parametrize("row", CHANGES.strip().splitlines())
def test_the_next_step_sees_what_the_program(row: str):
    _, make, statement, captures = row.split(" | ")
    both = Both(MODELS[make](), "AdamW", lr=0.01)
    data = batches(14)

    both.train(data[:7])
    for m, o in ((both.theirs, both.their_optimizer), (both.ours, both.our_optimizer)):
        group = {"params": o.param_groups[0]["params"], "add_group": o.add_param_group}
        exec(statement, globals() | {"m": m, "o": o, **group})
    both.train(data[7:])

    both.compare(int(captures))


@pytest.mark.parametrize("number", [int, float])
def test_a_number_that_changes_again(number: type[int | float]):
    """Dynamo would take what changes for an input, and its guards let it change."""
    both = Both(Scaled(), lr=0.01)
    data = batches(32)

    for i in range(4):
        for model in (both.theirs, both.ours):
            model.weights[0] = model.deep[0]["scale"] = number(i + 1)
        both.train(data[8 * i : 8 * i + 8])

    both.compare(4)


def test_a_number_may_change_for_hours():
    """Dynamo keeps what it has compiled, up to a limit."""
    both = Both(Scaled(), lr=0.01, step={"max_graphs": 1})

    for i in range(12):
        for model in (both.theirs, both.ours):
            model.weights[0] = 1.0 + i / 8
        both.train(batches(13, seed=i))

    both.compare(12)


def test_a_dict_may_get_another_parameter():
    both = Both(Chosen(), lr=0.01)

    for name in ("a", "b", "a"):
        for model in (both.theirs, both.ours):
            model.use["w"] = getattr(model, name)
        both.train(batches(6))

    both.compare(3)


penalised: dict[str, torch.Tensor] = {}


@pytest.mark.parametrize("where", ["closure", "global"])
def test_the_loss_may_read_another_parameter(where):
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6))
    (theirs, _), (ours, optimizer) = twins(model, "SGD", lr=0.0)
    mine: dict[str, torch.Tensor] = {}

    def loss_of_closure(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(x, y) + mine["w"].square().sum()

    def loss_of_global(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(x, y) + penalised["w"].square().sum()

    found, loss_fn = mine, loss_of_closure
    if where == "global":
        found, loss_fn = penalised, loss_of_global
    step = npu_dispatch.compile_step(ours, optimizer, loss_fn, backend="eager")
    x, y = torch.randn(4, 6).npu(), torch.randn(4, 6).npu()
    for layer in (0, 2, 0):
        for _ in range(5):
            found["w"] = theirs[layer].weight
            want = loss_fn(theirs(x), y).item()
            found["w"] = ours[layer].weight
            assert step(x, y).item() == pytest.approx(want, rel=1e-4)
    penalised.clear()
    assert (step.reason, step.captures) == (None, 3)


def test_a_plain_loop_goes_on_from_where_a_step_left():
    both = Both(kind="Adam", lr=0.01)
    data = batches(10)

    both.train_theirs(data)
    got = plain_loop(both.ours, both.our_optimizer, data[:2])
    got += [both.step(*batch).item() for batch in data[2:7]]
    fresh = copy.deepcopy(both.ours).cpu()
    other = torch.optim.Adam(fresh.parameters(), lr=0.01)
    other.load_state_dict(both.our_optimizer.state_dict())
    got += plain_loop(fresh, other, data[7:])

    torch.testing.assert_close(got, both.want, rtol=1e-4, atol=1e-5)


def test_gradients_of_others_are_not_added():
    both = Both()
    data = batches(8)

    for batch in data:
        both.train([batch])
        for p in both.ours.parameters():
            p.grad = torch.ones_like(p)
    both.our_optimizer.zero_grad()

    both.compare(1)


def test_accumulation_that_somebody_gives_up_half_way():
    both = Both(step={"accumulate": 2})
    data = batches(9)

    plain_loop(both.theirs, both.their_optimizer, data[:6], accumulate=2)
    F.cross_entropy(both.theirs(data[6][0].npu()), data[6][1].npu())
    # Its loss counts as half a batch's.
    plain_loop(both.theirs, both.their_optimizer, [data[7]])
    for i, batch in enumerate(data[:8]):
        if i == 7:
            both.our_optimizer.param_groups[0]["lr"] = 0.2
            both.our_optimizer.zero_grad()
        both.step(*batch)

    both.our_optimizer.param_groups[0]["lr"] = 0.1
    both.compare()


def shapes(count: int) -> list[Batch]:
    return [b for rows in range(2, 2 + count) for b in batches(1, rows)] * 4


def test_further_shapes_run_without_a_graph_and_are_reported_once():
    both = Both(step={"max_graphs": 3})

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        both.train(shapes(6))

    both.compare()
    assert both.step.captures == 3
    [said] = [w for w in caught if "compile_step" in str(w.message)]
    assert "keeps 3 graphs" in str(said.message) and "max_graphs" in str(said.message)


def test_a_scheduler_s_rate_holds_for_further_shapes():
    both = Both(
        step={"max_graphs": 1}, scheduler=lambda o: lr_scheduler.ExponentialLR(o, 0.5)
    )

    with pytest.warns(UserWarning, match="keeps 1 graphs"):
        both.train([*batches(3, 2), *shapes(5)[1:5]])

    both.compare()


def test_graphs_of_many_shapes_share_their_memory():
    torch.manual_seed(0)
    layers = nn.Linear(16, 512), *(nn.ReLU() for _ in range(20)), nn.Linear(512, 4)
    model = nn.Sequential(*layers).npu()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    how = {"backend": "eager", "max_graphs": 50}
    step = npu_dispatch.compile_step(model, optimizer, F.cross_entropy, **how)

    def train(rows: list[int]) -> int:
        for n in rows:
            for batch in batches(3, n):
                step(*batch)
        torch.npu.synchronize()
        gc.collect()
        torch.npu.empty_cache()
        return torch.npu.memory_reserved()

    one = train([1049])
    many = train(list(range(1000, 1049)))

    assert step.captures == 50
    # 50 times the memory of activations would be 2 GB.
    assert many - one < one


def test_a_model_may_ask_whether_two_arguments_are_one_tensor():
    class Asks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 4)

        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return self.layer(a) * (3.0 if a is b else 1.0)

    (theirs, _), (ours, optimizer) = twins(Asks(), "SGD", lr=0.0)
    step = npu_dispatch.compile_step(ours, optimizer, F.mse_loss, backend="eager")
    a, other = torch.rand(2, 3, 16).npu()
    y = torch.rand(3, 4).npu()

    for i in range(12):
        b = a if i % 2 else other
        want = F.mse_loss(theirs(a, b), y).item()
        assert step(a, b, y).item() == pytest.approx(want)
    assert (step.reason, step.captures) == (None, 2)


def test_a_tensor_may_be_two_arguments():
    both = Both(nn.Linear(16, 16), loss_fn=F.mse_loss)

    both.train((x, x) for x in (x.npu() for x, _ in batches(8)))

    both.compare(1)


def test_steps_on_other_streams_keep_their_order():
    both = Both()
    data = [(x.npu(), y.npu()) for x, y in batches(12)]
    torch.npu.synchronize()
    streams = [torch.npu.Stream(), torch.npu.current_stream(), torch.npu.Stream()]

    both.train_theirs(data)
    losses = []
    for i, batch in enumerate(data):
        with torch.npu.stream(streams[i % 3]):
            losses.append(both.step(*batch))
    torch.npu.synchronize()
    both.got = [v.item() for v in losses]

    both.compare()


def test_an_input_that_begins_to_require_a_gradient_gets_it():
    both = Both(lr=0.0)
    [(x, y)] = batches(1)
    x, y = x.npu(), y.npu()
    for _ in range(6):
        both.step(x, y)
    assert both.step.replays
    with pytest.warns(UserWarning, match="an input requires a gradient"):
        both.step(x.requires_grad_(), y)

    want = x.detach().clone().requires_grad_()
    F.cross_entropy(both.theirs(want), y).backward()
    torch.testing.assert_close(x.grad, want.grad)


def test_a_capture_that_finds_no_memory_ends_the_captures():
    both = Both()
    data = iter(batches(16))

    both.train([next(data), next(data)])
    total = torch.npu.get_device_properties().total_memory
    batch = next(data)
    both.train_theirs([batch])
    torch.npu.empty_cache()  # a graph may have what nobody uses
    torch.npu.set_per_process_memory_fraction(torch.npu.memory_reserved() / total)
    try:
        with pytest.warns(UserWarning, match="NPU out of memory"):
            both.got.append(both.step(*batch).item())
    finally:
        torch.npu.set_per_process_memory_fraction(1.0)
    both.train(data)

    both.compare()
