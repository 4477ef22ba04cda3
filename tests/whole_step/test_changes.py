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
from step_loop import Batch, batches, classifier, plain_loop, twins, values
from torch import nn

import npu_dispatch

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
Change = Callable[[nn.Module, torch.optim.Optimizer], None]


def freeze(model: nn.Module, _: torch.optim.Optimizer) -> None:
    model[0].weight.requires_grad_(False)


def stop_normalising(model: nn.Module, _: torch.optim.Optimizer) -> None:
    model[1].eval()


def evaluate_meanwhile(model: nn.Module, _: torch.optim.Optimizer) -> None:
    model.eval()
    with torch.no_grad():
        model(torch.ones(3, 16, device="npu"))
    model.train()


def load_the_model(model: nn.Module, _: torch.optim.Optimizer) -> None:
    model.load_state_dict(copy.deepcopy(classifier(seed=5)).state_dict())


def load_the_optimizer(_: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    state = copy.deepcopy(optimizer.state_dict())
    for entry in state["state"].values():
        entry["exp_avg"].mul_(2)
    optimizer.load_state_dict(state)


def decay(_: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.param_groups[0]["weight_decay"] = 0.5


def replace_an_activation(model: nn.Module, _: torch.optim.Optimizer) -> None:
    model[2] = nn.Tanh()


def move_the_data(model: nn.Module, _: torch.optim.Optimizer) -> None:
    weight = model[3].weight
    weight.data = weight.data.clone() * 2


def register_a_hook(model: nn.Module, _: torch.optim.Optimizer) -> None:
    model[2].register_forward_hook(lambda module, args, result: result * 2)


def clear_gradients(_: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad(set_to_none=False)


def set_a_rate(_: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.param_groups[0]["lr"] = torch.tensor(0.2)


@pytest.mark.parametrize(
    ("change", "captures"),
    [
        (evaluate_meanwhile, 1),
        (load_the_model, 1),
        (clear_gradients, 1),
        (set_a_rate, 1),
        (freeze, 2),
        (stop_normalising, 2),
        (load_the_optimizer, 2),
        (decay, 2),
        (replace_an_activation, 2),
        (move_the_data, 2),
        (register_a_hook, 2),
    ],
)
def test_the_next_step_sees(change: Change, captures: int):
    (theirs, their_optimizer), (ours, our_optimizer) = twins(
        classifier(), "AdamW", lr=0.01
    )
    step = npu_dispatch.compile_step(
        ours, our_optimizer, F.cross_entropy, backend="eager"
    )
    data = batches(12)

    want = plain_loop(theirs, their_optimizer, data[:6])
    got = [step(*batch).item() for batch in data[:6]]
    change(theirs, their_optimizer)
    change(ours, our_optimizer)
    want += plain_loop(theirs, their_optimizer, data[6:])
    got += [step(*batch).item() for batch in data[6:]]

    torch.testing.assert_close(got, want, **CLOSE)
    torch.testing.assert_close(values(ours), values(theirs), **CLOSE)
    assert (step.reason, step.captures) == (None, captures)


def test_a_plain_loop_goes_on_from_where_a_step_left():
    (theirs, optimizer), (ours, our_optimizer) = twins(classifier(), "Adam", lr=0.01)
    data = batches(10)
    step = npu_dispatch.compile_step(
        ours, our_optimizer, F.cross_entropy, backend="eager"
    )

    want = plain_loop(theirs, optimizer, data)
    got = plain_loop(ours, our_optimizer, data[:2])
    got += [step(*batch).item() for batch in data[2:7]]
    fresh = copy.deepcopy(ours).cpu()
    other = torch.optim.Adam(fresh.parameters(), lr=0.01)
    other.load_state_dict(our_optimizer.state_dict())
    got += plain_loop(fresh, other, data[7:])

    torch.testing.assert_close(got, want, **CLOSE)


def test_accumulation_that_somebody_gives_up_half_way():
    (theirs, optimizer), (ours, our_optimizer) = twins(classifier(), "SGD", lr=0.1)
    step = npu_dispatch.compile_step(
        ours, our_optimizer, F.cross_entropy, accumulate=2, backend="eager"
    )
    data = batches(9)

    plain_loop(theirs, optimizer, data[:6], accumulate=2)
    F.cross_entropy(theirs(data[6][0].npu()), data[6][1].npu())
    plain_loop(theirs, optimizer, [data[7]])  # its loss counts as half a batch's
    for i, batch in enumerate(data[:8]):
        if i == 7:
            our_optimizer.param_groups[0]["lr"] = 0.2
            our_optimizer.zero_grad()
        step(*batch)

    torch.testing.assert_close(values(ours), values(theirs), **CLOSE)


def shapes(count: int) -> list[Batch]:
    return [b for rows in range(2, 2 + count) for b in batches(1, rows)] * 4


def test_further_shapes_run_without_a_graph_and_are_reported_once():
    (theirs, optimizer), (ours, our_optimizer) = twins(classifier(), "SGD", lr=0.1)
    step = npu_dispatch.compile_step(
        ours, our_optimizer, F.cross_entropy, backend="eager", max_graphs=3
    )
    data = shapes(6)

    want = plain_loop(theirs, optimizer, data)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got = [step(*batch).item() for batch in data]

    torch.testing.assert_close(got, want, **CLOSE)
    assert step.captures == 3
    [said] = [w for w in caught if "compile_step" in str(w.message)]
    assert "keeps 3 graphs" in str(said.message) and "max_graphs" in str(said.message)
    assert said.filename == __file__


def test_a_scheduler_s_rate_holds_for_further_shapes():
    (theirs, optimizer), (ours, our_optimizer) = twins(classifier(), "SGD", lr=0.1)
    schedulers = [
        torch.optim.lr_scheduler.ExponentialLR(o, 0.5)
        for o in (optimizer, our_optimizer)
    ]
    step = npu_dispatch.compile_step(
        ours,
        our_optimizer,
        F.cross_entropy,
        scheduler=schedulers[1],
        backend="eager",
        max_graphs=1,
    )
    data = batches(3, 2) + [b for rows in range(3, 7) for b in batches(1, rows)]

    want = plain_loop(theirs, optimizer, data, scheduler=schedulers[0])
    with pytest.warns(UserWarning, match="keeps 1 graphs"):
        got = [step(*batch).item() for batch in data]

    torch.testing.assert_close(got, want, **CLOSE)
    torch.testing.assert_close(values(ours), values(theirs), **CLOSE)


def test_graphs_of_many_shapes_share_their_memory():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(16, 512), *(nn.ReLU() for _ in range(20)), nn.Linear(512, 4)
    ).npu()
    step = npu_dispatch.compile_step(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        F.cross_entropy,
        backend="eager",
        max_graphs=50,
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
    (theirs, optimizer), (ours, our_optimizer) = twins(nn.Linear(16, 16), "SGD", lr=0.1)
    step = npu_dispatch.compile_step(ours, our_optimizer, F.mse_loss, backend="eager")
    data = [(x, x) for x, _ in batches(8)]

    want = plain_loop(theirs, optimizer, data, loss_fn=F.mse_loss)
    got = [step(x, x).item() for x in (x.npu() for x, _ in data)]

    torch.testing.assert_close(got, want, **CLOSE)
    assert step.captures == 1 and step.reason is None


def test_steps_on_other_streams_keep_their_order():
    (theirs, optimizer), (ours, our_optimizer) = twins(classifier(), "SGD", lr=0.1)
    step = npu_dispatch.compile_step(
        ours, our_optimizer, F.cross_entropy, backend="eager"
    )
    data = [(x.npu(), y.npu()) for x, y in batches(12)]
    torch.npu.synchronize()
    streams = [torch.npu.Stream(), torch.npu.current_stream(), torch.npu.Stream()]

    want = plain_loop(theirs, optimizer, data)
    got: list[Any] = []
    for i, batch in enumerate(data):
        with torch.npu.stream(streams[i % 3]):
            got.append(step(*batch))
    torch.npu.synchronize()

    torch.testing.assert_close([v.item() for v in got], want, **CLOSE)


class Scaled(nn.Module):
    """A layer whose scale is in a list, in an object, and in a dict of a list."""

    class Config:
        scale = 2.0

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 4)
        self.weights = [1.0, 2.0]
        self.config = self.Config()
        self.deep = [{"scale": 1.0}]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = self.weights[0] * self.config.scale * self.deep[0]["scale"]
        return self.layer(x) * scale


def change_a_list(model: Scaled) -> None:
    model.weights[0] = 3.0


def change_an_object(model: Scaled) -> None:
    model.config.scale = 5.0


def change_deep_inside(model: Scaled) -> None:
    model.deep[0]["scale"] = 0.5


@pytest.mark.parametrize(
    "change", [change_a_list, change_an_object, change_deep_inside]
)
def test_numbers_in_lists_and_objects_reach_the_next_step(
    change: Callable[[Scaled], None],
):
    torch.manual_seed(0)
    (theirs, their_optimizer), (ours, our_optimizer) = twins(Scaled(), "SGD", lr=0.1)
    step = npu_dispatch.compile_step(
        ours, our_optimizer, F.cross_entropy, backend="eager"
    )
    data = batches(14)

    want = plain_loop(theirs, their_optimizer, data[:7])
    got = [step(*batch).item() for batch in data[:7]]
    change(theirs)
    change(ours)
    want += plain_loop(theirs, their_optimizer, data[7:])
    got += [step(*batch).item() for batch in data[7:]]

    torch.testing.assert_close(got, want, **CLOSE)
    assert (step.reason, step.captures) == (None, 2)


def test_an_input_that_begins_to_require_a_gradient_gets_it():
    (model, optimizer), (theirs, _) = twins(classifier(), "SGD", lr=0.0)
    step = npu_dispatch.compile_step(model, optimizer, F.cross_entropy, backend="eager")
    [(x, y)] = batches(1)
    x, y = x.npu(), y.npu()
    for _ in range(6):
        step(x, y)
    assert step.replays
    with pytest.warns(UserWarning, match="an input requires a gradient"):
        step(x.requires_grad_(), y)

    want = x.detach().clone().requires_grad_()
    F.cross_entropy(theirs(want), y).backward()
    torch.testing.assert_close(x.grad, want.grad)


def test_a_capture_that_finds_no_memory_is_tried_again():
    (theirs, their_optimizer), (ours, our_optimizer) = twins(
        classifier(), "SGD", lr=0.1
    )
    step = npu_dispatch.compile_step(
        ours, our_optimizer, F.cross_entropy, backend="eager"
    )
    data = batches(16)
    want = plain_loop(theirs, their_optimizer, data)

    got = [step(*batch).item() for batch in data[:2]]
    while not any(program.settled for program in step._programs.values()):
        got.append(step(*data[len(got)]).item())
    total = torch.npu.get_device_properties().total_memory
    torch.npu.empty_cache()  # a graph may have what nobody uses
    torch.npu.set_per_process_memory_fraction(torch.npu.memory_reserved() / total)
    try:
        got.append(step(*data[len(got)]).item())
    finally:
        torch.npu.set_per_process_memory_fraction(1.0)
    assert (step.reason, step.captures) == (None, 0)
    got += [step(*batch).item() for batch in data[len(got) :]]

    torch.testing.assert_close(got, want, **CLOSE)
    assert (step.reason, step.captures) == (None, 1)


class WithTensors(nn.Module):
    """A layer that reads tensors which are neither parameters nor buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 4)
        self.own = torch.full((4,), 1.0, device="npu")
        self.listed = [torch.full((4,), 2.0, device="npu")]
        self.held = Scaled.Config()
        self.held.inside = {"deep": torch.full((4,), 3.0, device="npu")}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * self.own * self.listed[0] + self.held.inside["deep"]


def replace_its_own(model: WithTensors, value: torch.Tensor) -> None:
    model.own = value


def replace_in_a_list(model: WithTensors, value: torch.Tensor) -> None:
    model.listed[0] = value


def replace_in_an_object(model: WithTensors, value: torch.Tensor) -> None:
    model.held.inside["deep"] = value


@pytest.mark.parametrize(
    "change", [replace_its_own, replace_in_a_list, replace_in_an_object]
)
def test_tensors_in_attributes_may_be_replaced(
    change: Callable[[WithTensors, torch.Tensor], None],
):
    torch.manual_seed(0)
    (theirs, their_optimizer), (ours, our_optimizer) = twins(
        WithTensors(), "SGD", lr=0.1
    )
    step = npu_dispatch.compile_step(
        ours, our_optimizer, F.cross_entropy, backend="eager"
    )
    data = batches(14)
    kept = [ours.own, ours.listed[0], ours.held.inside["deep"]]  # stay alive

    want = plain_loop(theirs, their_optimizer, data[:7])
    got = [step(*batch).item() for batch in data[:7]]
    value = torch.linspace(1, 2, 4).npu()
    change(theirs, value)
    change(ours, value)
    want += plain_loop(theirs, their_optimizer, data[7:])
    got += [step(*batch).item() for batch in data[7:]]

    torch.testing.assert_close(got, want, **CLOSE)
    assert (step.reason, step.captures, len(kept)) == (None, 2, 3)


def test_what_the_model_does_not_read_may_change():
    (model, optimizer), _ = twins(classifier(), "SGD", lr=0.1)
    step = npu_dispatch.compile_step(model, optimizer, F.cross_entropy, backend="eager")
    data = batches(8)
    for i, batch in enumerate(data):
        model.steps_so_far = i
        step(*batch)

    assert (step.reason, step.captures) == (None, 1)
