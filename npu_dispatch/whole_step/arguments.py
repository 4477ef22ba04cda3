"""The check of what compile_step() is given."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from npu_dispatch.whole_step.step import CompiledStep
from npu_dispatch.whole_step.training import Training

__all__ = ["checked"]


def _name(value: object) -> str:
    return type(value).__name__


def _device_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> torch.device:
    """Return the one npu that everything is on."""
    of_optimizer = [p for group in optimizer.param_groups for p in group["params"]]
    tensors = [*model.parameters(), *model.buffers(), *of_optimizer]
    devices = sorted({str(t.device) for t in tensors})
    if len(devices) != 1 or not devices[0].startswith("npu"):
        raise ValueError(
            "compile_step needs model and optimizer on one npu, found them on "
            f"{', '.join(devices) or 'no device'}: call model.npu() before the "
            "optimizer is made"
        )
    known = {id(t) for t in model.parameters()}
    if not any(id(p) in known for p in of_optimizer):
        raise ValueError(
            "compile_step needs an optimizer of the model's parameters, but it has "
            "none of them: make it from model.parameters(), after model.npu()"
        )
    return torch.device(devices[0])


def _check_scheduler(scheduler: Any, optimizer: torch.optim.Optimizer) -> None:
    if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        raise TypeError(
            "compile_step cannot step a ReduceLROnPlateau, which takes a metric: "
            "call scheduler.step(metric) yourself, after the steps it is about"
        )
    if not callable(getattr(scheduler, "step", None)):
        raise TypeError(f"scheduler needs a step() method, got {_name(scheduler)}")
    if getattr(scheduler, "optimizer", optimizer) is not optimizer:
        raise ValueError("scheduler is of another optimizer than the one given")


def checked(
    model: Any,
    optimizer: Any,
    loss_fn: Any,
    *,
    scheduler: Any,
    scaler: Any,
    clip_norm: Any,
    clip_value: Any,
    accumulate: Any,
    autocast: Any,
    backend: Any,
    dynamic: Any,
    options: Any,
    max_graphs: Any,
) -> CompiledStep:
    """Return the step, or raise an error that says what is wrong with the arguments."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {_name(model)}")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(
            f"optimizer must be a torch.optim.Optimizer, got {_name(optimizer)}"
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise TypeError(
            "compile_step cannot use LBFGS, which evaluates the model several times "
            "in a step; use another optimizer, or a plain loop"
        )
    if loss_fn is not None and not callable(loss_fn):
        raise TypeError(f"loss_fn must be callable or None, got {_name(loss_fn)}")
    for name, count in (("accumulate", accumulate), ("max_graphs", max_graphs)):
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise ValueError(f"{name} must be a whole number above 0, got {count!r}")
    for name, limit in (("clip_grad_norm", clip_norm), ("clip_grad_value", clip_value)):
        if limit is not None and not (isinstance(limit, (int, float)) and limit > 0):
            raise ValueError(f"{name} must be a number above 0, got {limit!r}")
    if autocast not in (None, torch.float16, torch.bfloat16):
        raise ValueError(
            f"autocast must be torch.float16 or torch.bfloat16, got {autocast!r}"
        )
    if scaler is not None and not isinstance(scaler, torch.amp.GradScaler):
        raise TypeError(f"scaler must be a torch.amp.GradScaler, got {_name(scaler)}")
    if scheduler is not None:
        _check_scheduler(scheduler, optimizer)
    training = Training(
        model,
        optimizer,
        loss_fn,
        scaler if scaler is not None and scaler.is_enabled() else None,
        clip_norm,
        clip_value,
        accumulate,
        autocast,
    )
    return CompiledStep(
        training,
        _device_of(model, optimizer),
        scheduler=scheduler,
        backend=backend,
        dynamic=dynamic,
        options=options,
        max_graphs=max_graphs,
    )
