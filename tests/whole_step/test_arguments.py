"""Wrong arguments raise at once: what was asked, what was found, what to do."""

import re
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import LBFGS
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR

import npu_dispatch


def trained(model: Any = None, kind: Any = torch.optim.SGD) -> dict[str, Any]:
    model = model or nn.Linear(4, 2).npu()
    return {"model": model, "optimizer": kind(model.parameters(), lr=0.1)}


def given(**other: Any) -> dict[str, Any]:
    return trained() | {"loss_fn": F.mse_loss} | other


ON_CPU = "on one npu, found them on cpu: call model.npu()"


class Own(torch.optim.SGD):
    pass


def scheduled(kind: Any, *options: Any) -> dict[str, Any]:
    own = trained()
    return own | {"scheduler": kind(own["optimizer"], *options)}


def of_another(part: str) -> dict[str, Any]:
    return {part: scheduled(StepLR, 1)[part]}


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ({"model": F.relu}, TypeError, "torch.nn.Module, got function"),
        ({"optimizer": 3}, TypeError, "Optimizer, got int"),
        ({"loss_fn": "mse"}, TypeError, "callable or None, got str"),
        (partial(trained, kind=LBFGS), TypeError, "several times in a step"),
        (
            partial(trained, kind=Own),
            TypeError,
            "What others read in step() is unknown",
        ),
        (partial(trained, nn.Linear(4, 2)), ValueError, ON_CPU),
        (partial(of_another, "optimizer"), ValueError, "has none of them"),
        (partial(scheduled, ReduceLROnPlateau), TypeError, "takes a metric"),
        (partial(of_another, "scheduler"), ValueError, "another optimizer"),
        ({"scheduler": 3}, TypeError, "step() method, got int"),
        ({"scaler": 3}, TypeError, "GradScaler, got int"),
        ({"accumulate": 0}, ValueError, "above 0, got 0"),
        ({"accumulate": 1.5}, ValueError, "whole number above 0, got 1.5"),
        ({"max_graphs": -1}, ValueError, "above 0, got -1"),
        ({"clip_grad_norm": 0}, ValueError, "above 0, got 0"),
        ({"clip_grad_value": "1"}, ValueError, "above 0, got '1'"),
        ({"autocast": torch.int8}, ValueError, "got torch.int8"),
    ],
)
def test_what_compile_step_refuses(wrong: Any, error: type[Exception], text: str):
    arguments = given(**(wrong() if callable(wrong) else wrong))

    with pytest.raises(error, match=re.escape(text)):
        npu_dispatch.compile_step(**arguments)


@pytest.mark.parametrize(
    ("loss_fn", "text"),
    [
        (lambda x, y: x - y, "gave [3, 2]"),
        (lambda x, y: "loss", "loss_fn (or the model, without loss_fn)"),
        (lambda x, y: {"cost": x.sum()}, '"loss" of a mapping'),
    ],
)
def test_losses_that_nothing_can_begin_from(loss_fn: Any, text: str):
    step = npu_dispatch.compile_step(**given(loss_fn=loss_fn), backend="eager")

    with pytest.raises(TypeError, match=re.escape(text)):
        step(torch.ones(3, 4), torch.ones(3, 2))


def test_a_step_needs_gradients():
    step = npu_dispatch.compile_step(**given(), backend="eager")

    with torch.no_grad(), pytest.raises(RuntimeError, match="no_grad"):
        step(torch.ones(3, 4), torch.ones(3, 2))
