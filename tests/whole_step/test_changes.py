"""What programs change between steps reaches the next step."""

from __future__ import annotations

import copy
import gc
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from step_loop import Batch, Both, batches, classifier, plain_loop
from torch import nn
from torch.optim import lr_scheduler

import npu_dispatch

Change = Callable[[Any, torch.optim.Optimizer], object]


class Scaled(nn.Module):
    """A layer whose scale is in a list, in an object, and in a dict of a list."""

    class Config:
        scale = 2.0

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(16, 4)
        self.weights = [1.0, 2.0]
        self.config = self.Config()
        self.deep = [{"scale": 1.0}]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = self.weights[0] * self.config.scale * self.deep[0]["scale"]
        return self.layer(x) * scale


class WithTensor(nn.Module):
    """A layer that reads a tensor which is neither a parameter nor a buffer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(16, 4)
        self.own = torch.full((4,), 1.0, device="npu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * self.own


def evaluate_meanwhile(model: nn.Module, _: Any) -> None:
    model.eval()
    with torch.no_grad():
        model(torch.ones(3, 16, device="npu"))
    model.train()


def load_the_model(model: nn.Module, _: Any) -> None:
    model.load_state_dict(copy.deepcopy(classifier(seed=5)).state_dict())


def load_the_optimizer(_: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    state = copy.deepcopy(optimizer.state_dict())
    for entry in state["state"].values():
        entry["exp_avg"].mul_(2)
    optimizer.load_state_dict(state)


def move_the_data(model: nn.Module, _: Any) -> None:
    weight = model[3].weight
    weight.data = weight.data.clone() * 2


def put(owner: Callable[[Any, Any], Any], key: Any, value: Callable[[], Any]) -> Change:
    """Return a change that sets an attribute, or an entry of a list or dict."""

    def change(model: Any, optimizer: Any) -> None:
        at = owner(model, optimizer)
        if isinstance(at, dict) or isinstance(key, int):
            at[key] = value()
        else:
            setattr(at, key, value())

    return change


def line() -> torch.Tensor:
    return torch.linspace(1, 2, 4).npu()


def linear() -> nn.Module:
    torch.manual_seed(4)
    return nn.Linear(32, 4).npu()


def split_the_group(_: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    moved = optimizer.param_groups[0]["params"].pop()
    optimizer.add_param_group({"params": [moved], "lr": 0.05})


# What is changed, and how many graphs there are then.
CHANGES: dict[str, tuple[Callable[[], nn.Module], Change, int]] = {
    "evaluates meanwhile": (classifier, evaluate_meanwhile, 1),
    "loads the model": (classifier, load_the_model, 1),
    "clears gradients": (classifier, lambda _, o: o.zero_grad(set_to_none=False), 1),
    "sets a rate": (
        classifier,
        put(lambda _, o: o.param_groups[0], "lr", lambda: torch.tensor(0.2)),
        1,
    ),
    "freezes": (classifier, lambda m, _: m[0].weight.requires_grad_(False), 2),
    "stops normalising": (classifier, lambda m, _: m[1].eval(), 2),
    "loads the optimizer": (classifier, load_the_optimizer, 2),
    "decays": (
        classifier,
        put(lambda _, o: o.param_groups[0], "weight_decay", lambda: 0.5),
        2,
    ),
    "replaces an activation": (classifier, put(lambda m, _: m, 2, nn.Tanh), 2),
    "moves the data": (classifier, move_the_data, 2),
    "registers a hook": (
        classifier,
        lambda m, _: m[2].register_forward_hook(lambda module, args, y: y * 2),
        2,
    ),
    "a number of a list": (Scaled, put(lambda m, _: m.weights, 0, lambda: 3.0), 2),
    "a number of an object": (
        Scaled,
        put(lambda m, _: m.config, "scale", lambda: 5.0),
        2,
    ),
    "a number deep inside": (
        Scaled,
        put(lambda m, _: m.deep[0], "scale", lambda: 0.5),
        2,
    ),
    "a tensor": (WithTensor, put(lambda m, _: m, "own", line), 2),
    "replaces a layer": (classifier, put(lambda m, _: m, 3, linear), 2),
    "splits a group": (classifier, split_the_group, 2),
    # What the model does not read.
    "another number": (classifier, put(lambda m, _: m, "steps_so_far", lambda: 3), 1),
}


@pytest.mark.parametrize("what", CHANGES)
def test_the_next_step_sees(what: str):
    make, change, captures = CHANGES[what]
    both = Both(make(), "AdamW", lr=0.01)
    data = batches(14)

    both.train(data[:7])
    change(both.theirs, both.their_optimizer)
    change(both.ours, both.our_optimizer)
    both.train(data[7:])

    both.compare(captures)


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
    model = nn.Sequential(
        nn.Linear(16, 512), *(nn.ReLU() for _ in range(20)), nn.Linear(512, 4)
    ).npu()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = npu_dispatch.compile_step(
        model, optimizer, F.cross_entropy, backend="eager", max_graphs=50
    )

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


def test_a_tensor_may_be_two_arguments():
    """The graph has a copy of each, which is compiled anew while it is captured."""
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
