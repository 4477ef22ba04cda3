"""What cannot be captured runs as the plain loop does, with a sentence about it."""

import dataclasses
import logging
import random
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from step_loop import Both, batches, classifier
from torch import nn

import npu_dispatch

HERE = Path(__file__)


def line_of(text: str) -> str:
    lines = HERE.read_text().splitlines()
    return f"{HERE}:{1 + next(i for i, line in enumerate(lines) if text in line)}"


class Model(nn.Module):
    def __init__(self, what: str) -> None:
        super().__init__()
        self.layers = classifier()
        self.what = what
        self.count = 0
        self.seen: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.what == "waits" and x.sum() > 0:  # waits here
            return self.layers(x * 2)
        if self.what == "prints":
            print("prints here")
        if self.what == "counts":
            self.count += 1
            return self.layers(x) * self.count
        if self.what == "notes":
            self.seen.append(len(self.seen))
        if self.what == "draws":
            return self.layers(x * random.random())
        if self.what == "draws tensors":
            return self.layers(x * torch.rand(()))
        if self.what == "selects":
            return self.layers(x[x[:, 0] > -9])
        return self.layers(x)


# What the model does, and what the line has that is named.
@pytest.mark.parametrize(
    ("what", "where"),
    [
        *[("waits", "waits here"), ("prints", 'print("prints here")')],
        *[(what, None) for what in ("counts", "notes", "draws", "draws tensors")],
        ("selects", "x[x[:, 0] > -9]"),
    ],
)
def test_a_model_that_does(what: str, where: str | None):
    both = Both(Model(what))
    data = batches(5)

    random.seed(1)
    torch.manual_seed(1)
    both.train_theirs(data)
    random.seed(1)
    torch.manual_seed(1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        both.got = [both.step(*batch).item() for batch in data]

    both.compare()
    ours, theirs = both.ours, both.theirs
    assert (ours.count, ours.seen) == (theirs.count, theirs.seen)
    said = [w for w in caught if "compile_step" in str(w.message)]
    assert len(said) == 1, [str(w.message) for w in caught]
    text = str(said[0].message)
    assert text.startswith("compile_step runs eagerly from now on: ")
    assert "\n" not in text
    if where:
        assert line_of(where) in text, text
    assert both.step.reason and both.step.reason in text


def eagerly(step: Any, data: Any) -> str:
    with pytest.warns(UserWarning, match="compile_step runs eagerly from now on"):
        for batch in data:
            step(*batch)
    return step.reason


@dataclasses.dataclass
class Result:
    loss: torch.Tensor
    logits: torch.Tensor


def test_a_result_of_an_unknown_class_is_the_callers_own():
    """Where its tensors are, nobody has said: a replay would write into them."""
    model = classifier().npu()
    step = npu_dispatch.compile_step(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        lambda x, y: Result(F.cross_entropy(x, y), x),
        backend="eager",
    )

    with pytest.warns(UserWarning, match="has a Result, in which tensors cannot"):
        results = [step(*batch) for batch in batches(5)]

    assert len({r.loss.item() for r in results}) == 5
    assert step.captures == 0


def test_a_loss_that_is_kept_is_named():
    both = Both()
    data = batches(5)
    x, y = data[0]
    kept = F.cross_entropy(both.ours(x.npu()), y.npu())

    assert "keep loss.detach()" in eagerly(both.step, data)
    assert kept.grad_fn is not None


def test_inputs_that_need_gradients_get_them():
    step = Both().step
    (x, y), *_ = batches(1)
    x = x.npu().requires_grad_()

    assert "input" in eagerly(step, [(x, y)])
    assert x.grad is not None


def test_wrong_batches_raise_what_the_loop_raises_and_change_nothing(monkeypatch):
    # pytest keeps what is logged, and with it the frames of Dynamo's own error.
    log = logging.getLogger("torch._subclasses.fake_tensor")
    monkeypatch.setattr(log, "disabled", True)
    both = Both(kind="AdamW", lr=0.01)

    for i, batch in enumerate(batches(10)):
        if i in (0, 4):
            with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
                both.step(torch.zeros(12, 5), batch[1])
        both.train([batch])

    both.compare(1)


@pytest.mark.parametrize("call", [0, 1])
def test_a_call_without_a_graph_raises_what_the_loop_raises(call: int):
    """By then the normalisation has changed its buffers, as in the loop."""
    armed = [False]

    @torch.library.custom_op("npu_dispatch_test::fails_once", mutates_args=())
    def fails_once(x: torch.Tensor) -> torch.Tensor:
        if armed[0]:
            armed[0] = False
            raise ValueError("once")
        return x.clone()

    fails_once.register_fake(torch.empty_like)

    def loss_fn(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits, y) + 0 * fails_once(logits.detach()).sum()

    both = Both(kind="AdamW", lr=0.01, loss_fn=loss_fn)
    data = batches(6)

    both.train(data[:call])
    for fail in (both.train_theirs, lambda batch: both.step(*batch[0])):
        armed[0] = True
        with pytest.raises(ValueError, match="once"):
            fail(data[call : call + 1])
    both.train(data[call + 1 :])

    both.compare()


def test_a_rate_that_no_graph_can_take_and_that_changes_all_the_time():
    both = Both(kind="Adagrad")

    with pytest.warns(UserWarning, match="Adagrad.state.step"):
        both.train(batches(12))

    both.compare()


def test_what_compiles_is_imported_at_the_first_capture(fresh_python):
    code = """
import sys, torch, npu_dispatch
def imported(*packages):
    return sorted(m for m in sys.modules if m.startswith(packages))
model = torch.nn.Linear(2, 2).npu()
model(torch.ones(1, 2, device="npu")).sum().backward()
print(imported("npu_dispatch.whole_step", "npu_dispatch.inductor", "torch._inductor."))
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
step = npu_dispatch.compile_step(model, optimizer, torch.nn.MSELoss())
print(imported("npu_dispatch.inductor.scheduling", "torch._inductor.compile_fx"))
for _ in range(3):
    step(torch.ones(2, 2), torch.ones(2, 2))
print("npu_dispatch.inductor.scheduling" in imported("npu_dispatch"))
"""
    assert fresh_python(code).stdout.splitlines() == ["[]", "[]", "True"]
