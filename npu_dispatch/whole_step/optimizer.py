"""Optimizers inside graphs: rates and counts on the device, fused kernels."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

# Optimizers whose fused kernels take the rate as a tensor, and those that take it so
# wherever they use it. Others have it as a number in their kernels, and a graph would
# keep that number.
_FUSED = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)
_WITH_TENSORS = {"Adam", "AdamW", "NAdam", "RAdam", "Adamax", "RMSprop", "Adadelta"}
_COUNTS = ("step", "eta", "mu", "mu_product")
_CHANGED = ("lr", "capturable", "fused", "foreach")
_SCALES = "_step_supports_amp_scaling"


def _fits_fused(p: Tensor, state: dict[str, Any]) -> bool:
    """Return whether a fused kernel, which walks memory, can update a parameter."""
    if p.layout != torch.strided or not p.is_floating_point():
        return False
    tensors = [t for t in (p, *state.values()) if isinstance(t, Tensor) and t.dim()]
    # Only a tensor without gaps and overlaps keeps its strides.
    dense = torch.empty_like(p, device="meta").stride()
    return all(t.stride() == dense for t in tensors)


class OnDevice:
    """The form of an optimizer that a graph can have.

    Its groups show the user's own values, which schedulers change. Only within
    `in_place()` do they hold tensors of the device, which a graph reads instead.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, device: torch.device) -> None:
        self._optimizer = optimizer
        self._device = device
        self.rates: list[Tensor] = []
        self._known: list[Any] = []  # what was set in them

    def prepare(self) -> None:
        """Move counts of steps to the device, and make room for the rates."""
        state, groups = self._optimizer.state, self._optimizer.param_groups
        # One kernel does all parameters, and reads rate and scale on the device.
        self._fused = type(self._optimizer) in _FUSED and not any(
            group["differentiable"]
            or not all(_fits_fused(p, state.get(p, {})) for p in group["params"])
            for group in groups
        )
        self.rates = []
        if self._fused or type(self._optimizer).__name__ in _WITH_TENSORS:
            # Fused kernels compute with the rate in double precision, as with a number.
            dtype = torch.float64 if self._fused else torch.float32
            made = (torch.zeros((), dtype=dtype, device=self._device) for _ in groups)
            self.rates = list(made)
        self._known = [None] * len(groups)
        self.move_counts(self._device)

    def move_counts(self, device: torch.device) -> None:
        """Move the counts of steps: to the host for an optimizer that runs plainly."""
        for group in self._optimizer.param_groups:
            if group.get("capturable", True) or group.get("fused"):
                continue  # the user has them on the device, or there are none
            for p in group["params"]:
                state = self._optimizer.state.get(p, {})
                for name in _COUNTS:
                    if isinstance(state.get(name), Tensor):
                        state[name] = state[name].to(device)

    def versions(self) -> list[int]:
        """Return what tells that a step has changed a parameter or a state."""
        states = (v for state in self._optimizer.state.values() for v in state.values())
        params = (p for group in self._optimizer.param_groups for p in group["params"])
        return [t._version for t in (*params, *states) if isinstance(t, Tensor)]

    def refresh(self) -> None:
        """Bring rates that were changed since the last call to the device."""
        for i, rate in enumerate(self.rates):
            now = self._optimizer.param_groups[i]["lr"]
            if now is not self._known[i] or isinstance(now, Tensor):
                rate.fill_(now)
                self._known[i] = now

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the optimizer read the device's rates, and count there."""
        groups, own = self._optimizer.param_groups, vars(self._optimizer)
        before = [{k: group[k] for k in _CHANGED if k in group} for group in groups]
        scales = own.get(_SCALES, False)
        for i, group in enumerate(groups):
            if self.rates:
                group["lr"] = self.rates[i]
            if self._fused:
                group.update(fused=True, foreach=False)
            elif "capturable" in group:
                group["capturable"] = True
        if self._fused:
            own[_SCALES] = True
        try:
            yield
        finally:
            for group, kept in zip(groups, before, strict=True):
                group.update(kept)
            for name in ("grad_scale", "found_inf", *([] if scales else [_SCALES])):
                own.pop(name, None)
