"""Optimizers inside graphs: rates and counts on the device, fused kernels."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

__all__ = ["Rates"]

# Optimizers whose fused kernels take the rate as a tensor, and those that take it so
# wherever they use it. Others have it as a number in their kernels, and a graph would
# keep that number.
_FUSED = ("SGD", "Adam", "AdamW")
_WITH_TENSORS = {"Adam", "AdamW", "NAdam", "RAdam", "Adamax", "RMSprop", "Adadelta"}
_COUNTS = ("step", "eta", "mu", "mu_product")
_UNSET = object()


def _fits_fused(p: Tensor, state: dict[str, Any]) -> bool:
    """Return whether a fused kernel, which walks memory, can update a parameter."""
    return (
        p.is_floating_point()
        and p.layout == torch.strided
        # Only a tensor without gaps and overlaps keeps its strides.
        and torch.empty_like(p, device="meta").stride() == p.stride()
        and all(
            v.stride() == p.stride()
            for v in state.values()
            if isinstance(v, Tensor) and v.dim()
        )
    )


class Rates:
    """The tensors that a graph reads in place of the numbers in `param_groups`.

    The optimizer's groups show the user's own values, which schedulers change. Only
    while a step is compiled or captured do they hold tensors of the device.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, device: torch.device) -> None:
        self._optimizer = optimizer
        self._device = device
        kind = type(optimizer).__name__
        if not type(optimizer).__module__.startswith("torch.optim"):
            kind = ""
        self._kind = kind
        self._choose()
        self._rates: list[tuple[Any, Tensor]] = []  # what was set, and where
        self._moved: list[dict[str, Any]] = []

    def _choose(self) -> None:
        """Choose between fused kernels, tensors as rates, and numbers."""
        state = self._optimizer.state
        # One kernel does all parameters, and reads rate and scale on the device.
        self.fused = self._kind in _FUSED and not any(
            group["differentiable"]
            or not all(_fits_fused(p, state.get(p, {})) for p in group["params"])
            for group in self._groups
        )
        self.on_device = self.fused or self._kind in _WITH_TENSORS

    @property
    def _groups(self) -> list[dict[str, Any]]:
        return self._optimizer.param_groups

    def prepare(self) -> None:
        """Move counts of steps to the device, and make room for the rates."""
        fused = self.fused
        self._choose()  # parameters and states may have been replaced
        if fused != self.fused:
            self._rates.clear()
        for group in self._groups:
            if "capturable" not in group:
                continue
            for p in group["params"]:
                state = self._optimizer.state.get(p, {})
                for name in _COUNTS:
                    value = state.get(name)
                    if isinstance(value, Tensor) and value.device.type == "cpu":
                        state[name] = value.to(self._device)
                        self._moved.append(state)
        if self.on_device and len(self._rates) != len(self._groups):
            # Fused kernels compute with the rate in double precision, as with a number.
            dtype = torch.float64 if self.fused else torch.float32
            self._rates = [
                (None, torch.zeros((), dtype=dtype, device=self._device))
                for _ in self._groups
            ]

    def restore(self) -> None:
        """Move the counts back, for an optimizer that runs plainly."""
        for state in self._moved:
            for name in _COUNTS:
                if isinstance(state.get(name), Tensor):
                    state[name] = state[name].cpu()
        self._moved.clear()

    def refresh(self) -> None:
        """Bring rates that were changed since the last call to the device."""
        for i, (known, room) in enumerate(self._rates):
            now = self._groups[i]["lr"]
            if now is known and not isinstance(now, Tensor):
                continue
            if isinstance(now, Tensor):
                room.copy_(now)
            elif now != known:
                room.fill_(now)
            self._rates[i] = (now, room)

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the optimizer read the device's rates, and count there."""
        optimizer: Any = self._optimizer
        before = [dict(group) for group in self._groups]
        scales = getattr(optimizer, "_step_supports_amp_scaling", _UNSET)
        for i, group in enumerate(self._groups):
            if self._rates:
                group["lr"] = self._rates[i][1]
            if self.fused:
                group["fused"], group["foreach"] = True, False
            elif "capturable" in group:
                group["capturable"] = True
        if self.fused:
            optimizer._step_supports_amp_scaling = True
        try:
            yield
        finally:
            for group, kept in zip(self._groups, before, strict=True):
                for name in ("lr", "capturable", "fused", "foreach"):
                    if name in kept:
                        group[name] = kept[name]
            if scales is not _UNSET:
                optimizer._step_supports_amp_scaling = scales
            elif self.fused:
                del optimizer._step_supports_amp_scaling
