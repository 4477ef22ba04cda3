"""The training loop's body: forward, backward, and the optimizer's step."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

Function = Callable[..., Any]


def loss_in(result: Any) -> Tensor:
    """Return the loss that is in the result of loss_fn or of the model."""
    loss = result
    if isinstance(result, Mapping):
        loss = result.get("loss")
    elif isinstance(result, (tuple, list)):
        loss = result[0] if result else None
    elif not isinstance(result, Tensor):
        loss = getattr(result, "loss", None)
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        got = list(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
        raise TypeError(
            "compile_step needs a loss to begin backward from, a tensor of one element "
            '(reduce others, as with .mean()): alone, first of a tuple, or "loss" of a '
            f"mapping or object; loss_fn (or the model, without loss_fn) gave {got}"
        )
    return loss


@runtime_checkable
class _Steps(Protocol):
    def step(self) -> object: ...


@dataclasses.dataclass(eq=False)
class Training:
    """What one step does, in plain torch. Its forward may be compiled."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    loss_fn: Function | None
    scheduler: Any
    scaler: torch.amp.GradScaler | None
    clip_grad_norm: float | None
    clip_grad_value: float | None
    accumulate: int
    autocast: torch.dtype | None
    max_graphs: int

    def __post_init__(self) -> None:
        self._check_types()
        self._check_values()
        if self.scaler is not None and not self.scaler.is_enabled():
            self.scaler = None

    def _check_types(self) -> None:
        for name, kind, wanted in (
            ("model", nn.Module, "a torch.nn.Module"),
            ("optimizer", torch.optim.Optimizer, "a torch.optim.Optimizer"),
            ("loss_fn", Callable | None, "callable or None"),
            ("scheduler", _Steps | None, "None or have a step() method"),
            ("scaler", torch.amp.GradScaler | None, "None or a torch.amp.GradScaler"),
        ):
            value = getattr(self, name)
            if not isinstance(value, kind):  # type: ignore[arg-type]
                got = type(value).__name__
                raise TypeError(f"{name} must be {wanted}, got {got}")
        kind = type(self.optimizer)
        if kind is torch.optim.LBFGS or not kind.__module__.startswith("torch.optim."):
            raise TypeError(
                f"compile_step cannot use {kind.__name__}: it takes the optimizers of "
                "torch.optim, except LBFGS, which evaluates the model several times in "
                "a step. What others read in step() is unknown; use a plain loop"
            )
        if isinstance(self.scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
            raise TypeError(
                "compile_step cannot step a ReduceLROnPlateau, which takes a metric: "
                "call scheduler.step(metric) yourself, after the steps it is about"
            )

    def _check_values(self) -> None:
        for name in ("accumulate", "max_graphs", "clip_grad_norm", "clip_grad_value"):
            value, clips = getattr(self, name), name.startswith("clip")
            if clips and value is None:
                continue
            if not isinstance(value, (int, float) if clips else int) or not value > 0:
                wanted = "number" if clips else "whole number"
                raise ValueError(f"{name} must be a {wanted} above 0, got {value!r}")
        if self.autocast not in (None, torch.float16, torch.bfloat16):
            wanted = "torch.float16 or torch.bfloat16"
            raise ValueError(f"autocast must be {wanted}, got {self.autocast!r}")
        if getattr(self.scheduler, "optimizer", self.optimizer) is not self.optimizer:
            raise ValueError("scheduler is of another optimizer than the one given")
        own = [*self.model.parameters(), *self.model.buffers()]
        devices = sorted({str(t.device) for t in (*own, *self.parameters)})
        if len(devices) != 1 or not devices[0].startswith("npu"):
            raise ValueError(
                "compile_step needs model and optimizer on one npu, found them on "
                f"{', '.join(devices) or 'no device'}: call model.npu() before the "
                "optimizer is made"
            )
        if not set(map(id, own)) & set(map(id, self.parameters)):
            raise ValueError(
                "compile_step needs an optimizer of the model's parameters, but it has "
                "none of them: make it from model.parameters(), after model.npu()"
            )

    @property
    def parameters(self) -> list[Tensor]:
        """Return the optimizer's parameters, in its order."""
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def grads(self) -> dict[Tensor, Tensor]:
        return {p: p.grad for p in self.parameters if p.grad is not None}

    def forward(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Return the tensor to begin backward from, and what the user gets."""
        context: Any = contextlib.nullcontext()
        if self.autocast is not None:
            context = torch.autocast("npu", dtype=self.autocast)
        with context:
            if self.loss_fn is None:
                result = self.model(*args, **kwargs)
            else:
                result = self.loss_fn(self.model(*args[:-1], **kwargs), args[-1])
        return loss_in(result), result

    def backward(self, loss: Tensor) -> None:
        """Begin from the loss, divided by the number of batches that make a step."""
        if self.scaler is not None:
            loss = self.scaler.scale(loss)
        seed = torch.full_like(loss, 1 / self.accumulate)
        loss.backward(seed)  # type: ignore[no-untyped-call]

    def clip(self) -> None:
        if self.clip_grad_value is None and self.clip_grad_norm is None:
            return
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        if self.clip_grad_value is not None:
            nn.utils.clip_grad_value_(self.parameters, self.clip_grad_value)
        if self.clip_grad_norm is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.clip_grad_norm)

    def step(self) -> None:
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()

    def zero_grad(self) -> None:
        for p in self.parameters:
            p.grad = None
