"""The training loop's body: forward, backward, and the optimizer's step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import OptState

__all__ = ["Training"]

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
    if not isinstance(loss, Tensor):
        raise TypeError(
            "compile_step needs a loss to begin backward from: a tensor, the first "
            'of a tuple, or "loss" of a mapping or object; loss_fn (or the model, '
            f"without loss_fn) returned {type(result).__name__}"
        )
    if loss.numel() != 1:
        raise RuntimeError(
            "compile_step needs a loss of one element to begin backward from, got "
            f"shape {list(loss.shape)}: reduce it, as with .mean()"
        )
    return loss


class Training:
    """What one step does, in plain torch; its parts may be compiled or captured.

    `parameters` are those of the optimizer, in its order.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        loss_fn: Function | None,
        scaler: torch.amp.GradScaler | None,
        clip_norm: float | None,
        clip_value: float | None,
        accumulate: int,
        autocast: torch.dtype | None,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.loss_fn = loss_fn
        self.scaler = scaler
        self.clip_norm = clip_norm
        self.clip_value = clip_value
        self.accumulate = accumulate
        self.autocast = autocast
        self._seed: Tensor | None = None
        self._sums: dict[Tensor, Tensor] = {}  # gradients, if a step accumulates

    @property
    def parameters(self) -> list[Tensor]:
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def changed_by_forward(self) -> list[Tensor]:
        """Return the tensors that a step which fails half-way may have changed."""
        return [*self.model.buffers(), *self._sums.values()]

    @property
    def fused(self) -> bool:
        """Whether the optimizer's kernel skips infinite gradients by itself."""
        return bool(getattr(self.optimizer, "_step_supports_amp_scaling", False))

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
        seed = self._seed
        if seed is None or (seed.dtype, seed.shape) != (loss.dtype, loss.shape):
            # This is made before a capture, so that the graph needs no task for it.
            seed = self._seed = torch.full_like(loss.detach(), 1 / self.accumulate)
        loss.backward(seed)  # type: ignore[no-untyped-call]

    def clip(self) -> None:
        if self.clip_value is not None:
            nn.utils.clip_grad_value_(self.parameters, self.clip_value)
        if self.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.clip_norm)

    def update(self) -> bool:
        """Clip and take the optimizer's step; return whether it was taken.

        With a scaler and an optimizer that is not fused, the host waits for gradients.
        """
        scaler, optimizer = self.scaler, self.optimizer
        if scaler is None:
            self.clip()
            optimizer.step()
            return True
        stepped = True
        if not self.fused or self.clip_norm is not None or self.clip_value is not None:
            scaler.unscale_(optimizer)
            self.clip()
        if not self.fused:
            found = scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
            stepped = not any(v.item() for v in found.values())
        scaler.step(optimizer)
        scaler.update()
        return stepped

    def update_on_device(self, clip_and_step: Function) -> None:
        """Do the same without a look at the gradients from the host.

        The optimizer must have taken a step before, so that it has its state.
        """
        scaler, optimizer = self.scaler, self.optimizer
        if scaler is None:
            clip_and_step()
            return
        if self.fused:
            self.update()
            return
        scaler.unscale_(optimizer)
        state = scaler._per_optimizer_states[id(optimizer)]
        found = next(iter(state["found_inf_per_device"].values()))
        written = self._written_by_a_step()
        before = [t.detach().clone() for t in written]
        clip_and_step()
        with torch.no_grad():
            for now, then in zip(written, before, strict=True):
                now.copy_(torch.where(found > 0, then, now))
        state["stage"] = OptState.STEPPED
        scaler.update()

    def clip_and_step(self) -> None:
        self.clip()
        self.optimizer.step()

    def _written_by_a_step(self) -> list[Tensor]:
        states = (v for s in self.optimizer.state.values() for v in s.values())
        return [
            *(p for p in self.parameters if p.grad is not None),
            *(v for v in states if isinstance(v, Tensor)),
        ]

    def begin(self) -> None:
        """Bring gradients into the state in which backward expects them."""
        for p in self.parameters:
            total = self._sums.get(p)
            if total is not None and p.grad is not total:  # after a zero_grad()
                total.zero_()
            p.grad = total

    def keep(self) -> None:
        """Let later calls of an accumulating step add to what backward left."""
        if self.accumulate > 1:
            for p in self.parameters:
                if p.grad is not None:
                    self._sums[p] = p.grad

    def accumulates(self) -> bool:
        """Return whether gradients are where the calls before left them."""
        return all(p.grad is total for p, total in self._sums.items())

    def end(self) -> None:
        """Drop the gradients that the optimizer has used."""
        if self._sums:
            torch._foreach_zero_(list(self._sums.values()))
            return
        self.forget()

    def forget(self) -> None:
        """Drop all gradients, also those that a capture has left."""
        self._sums.clear()
        for p in self.parameters:
            p.grad = None
