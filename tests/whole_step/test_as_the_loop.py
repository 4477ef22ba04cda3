"""compile_step() computes what the plain loop does: losses, parameters, states.

Most steps are captured without Inductor, whose kernels are the business of
tests/inductor; the loops run eagerly on npu.
"""

import copy
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from step_loop import Both, batches, classifier, plain_loop, twins
from torch import Tensor, nn
from torch.optim import lr_scheduler

import npu_dispatch

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def check(kind, options, count=8, model=None, backend="eager", loop=None, **how):
    """Train twins by both; return the step, for what else a test asks."""
    both = Both(model, kind, step={"backend": backend}, loop=loop, **how, **options)
    both.train((x.npu(), y.npu()) for x, y in batches(count))

    both.compare(both.step.captures)
    # What users and checkpoints see of the hyperparameters is their own.
    mine, others = both.our_optimizer.param_groups, both.their_optimizer.param_groups
    for ours, theirs in zip(mine, others, strict=True):
        assert {k: ours[k] for k in ours if k != "params"} == {
            k: theirs[k] for k in theirs if k != "params"
        }
    if "scaler" in how:
        assert both.scalers[1].state_dict() == both.scalers[0].state_dict()
    assert both.step.replays >= count // 2 - 1
    assert all(p.grad is None or not p.grad.any() for p in both.ours.parameters())
    return both.step


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("SGD", {"lr": 0.1}),
        ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
        ("SGD", {"lr": 0.1, "foreach": False}),
        ("Adam", {"lr": 0.01, "fused": True}),
        ("Adam", {"lr": 0.01, "foreach": True, "amsgrad": True}),
        ("AdamW", {"lr": 0.01}),
        ("AdamW", {"lr": 0.01, "foreach": False}),
        ("AdamW", {"lr": 0.01, "capturable": True}),
        ("RMSprop", {"lr": 0.01}),
        ("NAdam", {"lr": 0.01}),
        ("Adamax", {"lr": 0.01}),
        ("Adadelta", {"lr": 0.5}),
        ("RAdam", {"lr": 0.01}),
    ],
)
def test_an_optimizer_takes_its_steps(kind: str, options: dict[str, Any]):
    step = check(kind, options)

    assert step.captures == 1


@pytest.mark.parametrize("kind", ["SGD", "AdamW", "RMSprop"])
def test_compiled_by_inductor(kind: str):
    step = check(
        kind,
        {"lr": 0.01},
        scheduler=lambda o: lr_scheduler.ExponentialLR(o, 0.8),
        loop={"clip_grad_norm": 0.05},
        backend="inductor",
    )

    assert step.captures == 1


@pytest.mark.parametrize(
    "schedule",
    [
        lambda o: lr_scheduler.StepLR(o, 2, 0.5),
        lambda o: lr_scheduler.CosineAnnealingLR(o, 8),
        lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=20, cycle_momentum=False),
        lambda o: lr_scheduler.LambdaLR(o, lambda n: 1 / (n + 1)),
    ],
)
def test_a_schedulers_rate_needs_no_new_graph(schedule: Any):
    step = check("AdamW", {"lr": 0.01}, scheduler=schedule)

    assert step.captures == 1


@pytest.mark.parametrize(
    ("kind", "options", "loop"),
    [
        ("SGD", {"lr": 0.1, "momentum": 0.9}, {}),
        ("AdamW", {"lr": 0.01}, {"accumulate": 2, "clip_grad_norm": 0.05}),
        ("RMSprop", {"lr": 0.01, "momentum": 0.5}, {}),
    ],
)
def test_a_number_that_changes_at_each_step_ends_the_captures(kind, options, loop):
    one_cycle = lambda o: lr_scheduler.OneCycleLR(o, 0.01, total_steps=40)  # noqa: E731
    both = Both(kind=kind, scheduler=one_cycle, loop=loop, **options)
    said = rf"{kind}.param_groups\[0\]\.\w+, which changes"

    with pytest.warns(UserWarning, match=said):
        both.train(batches(24))

    both.compare()


@pytest.mark.parametrize("kind", ["SGD", "RMSprop"])
@pytest.mark.parametrize("how", [{"clip_grad_norm": 0.05}, {"clip_grad_value": 0.001}])
def test_gradients_are_clipped(kind: str, how: dict[str, float]):
    check(kind, {"lr": 0.01}, loop=how)


@pytest.mark.parametrize("accumulate", [2, 3])
def test_gradients_accumulate(accumulate: int):
    loop = {"accumulate": accumulate, "clip_grad_norm": 0.1}
    step = check("AdamW", {"lr": 0.01}, count=6 * accumulate, loop=loop)

    assert step.captures == 2


def scaled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return 4 * F.cross_entropy(x, y)


def large_scale() -> Any:
    """The loss is infinite at first, and again where the scale has grown."""
    return torch.amp.GradScaler("npu", init_scale=2.0**127, growth_interval=2)


@pytest.mark.parametrize("kind", ["AdamW", "SGD"])
@pytest.mark.parametrize("loop", [{}, {"clip_grad_value": 0.01}])
def test_a_grad_scaler_skips_infinite_gradients_without_a_wait(kind, loop):
    how = {"scaler": large_scale, "loss_fn": scaled, "count": 16, "loop": loop}
    step = check(kind, {"lr": 0.01}, **how)

    assert step._training.scaler.get_scale() < 2.0**127, "none was infinite"


def test_a_grad_scaler_waits_for_the_gradients_of_other_optimizers():
    """Only fused kernels skip infinite gradients by themselves."""
    both = Both(kind="RMSprop", lr=0.01, scaler=large_scale, loss_fn=scaled)

    with pytest.warns(UserWarning, match="is not allowed while a graph is captured"):
        both.train((x.npu(), y.npu()) for x, y in batches(16))

    both.compare()
    assert both.scalers[1].state_dict() == both.scalers[0].state_dict()


def test_half_precision_with_its_scaler():
    loop = {"autocast": torch.float16, "clip_grad_norm": 1.0}
    both = Both(loop=loop, scaler=lambda: torch.amp.GradScaler("npu"))

    both.train(batches(10))

    both.compare(1, rtol=1e-3, atol=1e-3)
    assert both.scalers[1].state_dict() == both.scalers[0].state_dict()


class Tied(nn.Module):
    """A weight used twice, a frozen one, and one that nothing uses."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(16, 8)
        self.leave = nn.Linear(8, 16)
        self.leave.weight = nn.Parameter(self.enter.weight.detach().t().clone())
        self.inner = nn.Linear(16, 16, bias=False)
        self.outer = nn.Linear(16, 4)
        self.again = nn.Linear(16, 16, bias=False)
        self.again.weight = self.inner.weight
        self.unused = nn.Linear(2, 2)
        self.enter.weight.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.leave(self.enter(x).relu())
        return self.outer(self.again(self.inner(x).relu()))


@pytest.mark.parametrize("accumulate", [1, 2])
def test_tied_frozen_and_unused_parameters(accumulate: int):
    torch.manual_seed(0)
    how = {"loop": {"accumulate": accumulate}, "count": 8 * accumulate}
    check("AdamW", {"lr": 0.01, "weight_decay": 0.1}, model=Tied(), **how)


def test_dropout_draws_what_eager_code_draws():
    both = Both(nn.Sequential(nn.Linear(16, 64), nn.Dropout(0.5), nn.Linear(64, 4)))

    torch.manual_seed(3)
    both.train_theirs(batches(8))
    torch.manual_seed(3)
    both.got = [both.step(*batch).item() for batch in batches(8)]

    both.compare(1)
    assert both.step.replays == 6


class Chosen(nn.Module):
    """Uses one of its layers, which the batch says."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 4) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers[len(x) % 2](x)


def test_accumulated_gradients_of_parameters_that_some_batches_use():
    """A parameter without a gradient keeps its momentum, one with zeros does not."""
    both = Both(Chosen(), "AdamW", lr=0.01, loop={"accumulate": 2})
    rows = [2, 2, 3, 3, 2, 3, 3, 2, 2, 2, 3, 3, 3, 3, 2, 2]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        both.train(batches(1, n, seed=i)[0] for i, n in enumerate(rows))

    both.compare()


def test_results_are_the_callers_own():
    model = classifier().npu()

    def loss_fn(logits: torch.Tensor, target: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": logits, "loss": F.cross_entropy(logits, target)}

    step = npu_dispatch.compile_step(
        model, torch.optim.SGD(model.parameters(), lr=0.1), loss_fn, backend="eager"
    )

    results = [step(*batch) for batch in batches(5)]

    assert len({r["loss"].item() for r in results}) == 5
    for result, (_, target) in zip(results, batches(5), strict=True):
        want = F.cross_entropy(result["logits"].cpu(), target)
        torch.testing.assert_close(result["loss"].cpu(), want)
        assert not result["logits"].requires_grad


def test_a_model_that_returns_its_loss_and_takes_keywords():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 4)

        def forward(self, x: torch.Tensor, *, labels: torch.Tensor, by: float) -> Any:
            return F.cross_entropy(self.layer(x) * by, labels), by

    torch.manual_seed(0)
    (theirs, optimizer), (ours, our_optimizer) = twins(Model(), "SGD", lr=0.1)
    step = npu_dispatch.compile_step(ours, our_optimizer, backend="eager")

    for x, y in batches(5):
        optimizer.zero_grad()
        loss, _ = theirs(x.npu(), labels=y.npu(), by=2.0)
        loss.backward()
        optimizer.step()
        got, by = step(x, labels=y, by=2.0)
        torch.testing.assert_close(got, loss.detach(), **CLOSE)
        assert by == 2.0
    assert step.captures == 1


PROGRAM = """
import copy, torch, npu_dispatch
from torch import nn
torch.manual_seed(0)
own = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).npu(DEVICE)
other = copy.deepcopy(own)
optimizer, plain = (torch.optim.AdamW(m.parameters()) for m in (own, other))
step = npu_dispatch.compile_step(own, optimizer, nn.MSELoss(), backend="eager")
held = []
for x in torch.rand(8, 5, 4):
    y = torch.zeros(5, 1, device=DEVICE)
    held.append(step(x, y))
    plain.zero_grad()
    loss = nn.MSELoss()(other(x.to(DEVICE)), y)
    loss.backward()
    plain.step()
    torch.testing.assert_close(held[-1], loss.detach())
assert step.replays == 6 and len(set(map(float, held))) == 8, step.reason
"""


@pytest.mark.parametrize("device", ["npu:0", "npu:1"])
@pytest.mark.parametrize("blocking", ["0", "1"])
def test_on_each_device_and_with_launch_blocking(device: str, blocking: str, python):
    """npu:0 is the current device."""
    environment = {"NPU_DISPATCH_DEVICES": "2", "NPU_LAUNCH_BLOCKING": blocking}
    python(PROGRAM.replace("DEVICE", repr(device)), **environment)


class Product(nn.Module):
    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


def with_gaps() -> Tensor:
    return (torch.arange(32.0).reshape(4, 8) / 32).npu()[:, ::2]


def transposed() -> Tensor:
    return (torch.arange(16.0).reshape(4, 4) / 16).npu().t()


@pytest.mark.filterwarnings("ignore:compile_step runs eagerly")  # Adagrad
@pytest.mark.parametrize("make", [with_gaps, transposed])
@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "Adagrad", "RMSprop"])
def test_a_parameter_is_updated_where_it_is(make, kind):
    options = {"SGD": {"momentum": 0.9}, "Adam": {"amsgrad": True}}.get(kind, {})
    both = Both(Product(make()), kind, loss_fn=F.mse_loss, **options)

    both.train((x, x + 1) for x in torch.rand(8, 3, 4))

    both.compare()
    assert both.step.captures == (kind != "Adagrad")


def test_state_of_another_layout_is_used_as_the_plain_loop_uses_it():
    """A checkpoint may have it in the default layout."""
    both = Both(Product(transposed()), "AdamW", loss_fn=F.mse_loss)
    data = [(x, x + 1) for x in torch.rand(8, 3, 4)]
    for model, optimizer in (
        (both.theirs, both.their_optimizer),
        (both.ours, both.our_optimizer),
    ):
        plain_loop(model, optimizer, data[:1], loss_fn=F.mse_loss)
        state = copy.deepcopy(optimizer.state_dict())
        for name in ("exp_avg", "exp_avg_sq"):
            state["state"][0][name] = state["state"][0][name].contiguous()
        optimizer.load_state_dict(state)

    both.train(data[1:])

    both.compare(1)
