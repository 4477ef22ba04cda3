"""Wrong arguments raise at once: what was asked, what was found, what to do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import npu_dispatch


def given(**other: Any) -> dict[str, Any]:
    model = nn.Linear(4, 2).npu()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return {"model": model, "optimizer": optimizer, "loss_fn": F.mse_loss} | other


def on_cpu() -> dict[str, Any]:
    model = nn.Linear(4, 2)
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}


def of_another() -> dict[str, Any]:
    other = nn.Linear(4, 2).npu()
    return {"optimizer": torch.optim.SGD(other.parameters(), lr=0.1)}


def lbfgs() -> dict[str, Any]:
    model = nn.Linear(4, 2).npu()
    return {"model": model, "optimizer": torch.optim.LBFGS(model.parameters())}


class Own(torch.optim.SGD):
    pass


def of_another_library() -> dict[str, Any]:
    model = nn.Linear(4, 2).npu()
    return {"model": model, "optimizer": Own(model.parameters(), lr=0.1)}


def plateau() -> dict[str, Any]:
    plain = given()
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(plain["optimizer"])
    return plain | {"scheduler": schedule}


def schedule_of_another() -> dict[str, Any]:
    schedule = torch.optim.lr_scheduler.StepLR(given()["optimizer"], 1)
    return {"scheduler": schedule}


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ({"model": F.relu}, TypeError, "torch.nn.Module, got function"),
        ({"optimizer": 3}, TypeError, "Optimizer, got int"),
        ({"loss_fn": "mse"}, TypeError, "callable or None, got str"),
        (lbfgs, TypeError, "several times in a step"),
        (of_another_library, TypeError, "What others read in step() is unknown"),
        (on_cpu, ValueError, "on one npu, found them on cpu: call model.npu()"),
        (of_another, ValueError, "has none of them"),
        (plateau, TypeError, "takes a metric"),
        (schedule_of_another, ValueError, "another optimizer"),
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

    with pytest.raises(error) as raised:
        npu_dispatch.compile_step(**arguments)

    assert text in str(raised.value)


@pytest.mark.parametrize(
    ("loss_fn", "error", "text"),
    [
        (lambda x, y: x - y, TypeError, "gave [3, 2]"),
        (lambda x, y: "loss", TypeError, "loss_fn (or the model, without loss_fn)"),
        (lambda x, y: {"cost": x.sum()}, TypeError, '"loss" of a mapping'),
    ],
)
def test_losses_that_nothing_can_begin_from(loss_fn: Any, error: Any, text: str):
    step = npu_dispatch.compile_step(**given(loss_fn=loss_fn), backend="eager")

    with pytest.raises(error) as raised:
        step(torch.ones(3, 4), torch.ones(3, 2))

    assert text in str(raised.value)


def test_a_step_needs_gradients():
    step = npu_dispatch.compile_step(**given(), backend="eager")

    with torch.no_grad(), pytest.raises(RuntimeError, match="no_grad"):
        step(torch.ones(3, 4), torch.ones(3, 2))
