"""The plain training loop that compile_step() stands for, and batches for both."""

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import npu_dispatch

Batch = tuple[Tensor, Tensor]


def classifier(seed: int = 0) -> nn.Module:
    """Return a network with a normalisation whose buffers each step changes."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(16, 32, bias=False), nn.BatchNorm1d(32), nn.GELU(), nn.Linear(32, 4)
    )


def batches(count: int, rows: int = 12, seed: int = 1) -> list[Batch]:
    generator = torch.Generator().manual_seed(seed)
    return [
        (
            torch.randn(rows, 16, generator=generator),
            torch.randint(0, 4, (rows,), generator=generator),
        )
        for _ in range(count)
    ]


def twins(model: nn.Module, kind: str, device: str = "npu", **options: Any) -> Any:
    """Return two equal pairs of a model and its optimizer."""
    made = []
    for _ in range(2):
        one = copy.deepcopy(model).to(device)
        made.append((one, getattr(torch.optim, kind)(one.parameters(), **options)))
    return made


def plain_loop(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: Iterable[Batch],
    *,
    scheduler: Any = None,
    scaler: Any = None,
    clip_grad_norm: float | None = None,
    clip_grad_value: float | None = None,
    accumulate: int = 1,
    autocast: torch.dtype | None = None,
    loss_fn: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
) -> list[float]:
    """Train as people do, and return the losses."""
    device = next(model.parameters()).device
    losses = []
    optimizer.zero_grad()
    for i, (x, y) in enumerate(data):
        with torch.autocast(device.type, dtype=autocast, enabled=autocast is not None):
            loss = loss_fn(model(x.to(device)), y.to(device))
        losses.append(loss.item())
        loss = loss / accumulate
        (loss if scaler is None else scaler.scale(loss)).backward()
        if (i + 1) % accumulate:
            continue
        if scaler is not None:
            scaler.unscale_(optimizer)
        if clip_grad_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip_grad_norm)
        if clip_grad_value is not None:
            nn.utils.clip_grad_value_(model.parameters(), clip_grad_value)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        if scheduler is not None:
            scheduler.step()
        optimizer.zero_grad()
    return losses


class Both:
    """Equal models, one trained by the plain loop and one by compile_step()."""

    def __init__(
        self,
        model: nn.Module | None = None,
        kind: str = "SGD",
        *,
        loss_fn: Any = F.cross_entropy,
        step: dict[str, Any] | None = None,
        loop: dict[str, Any] | None = None,
        scheduler: Callable[[torch.optim.Optimizer], Any] | None = None,
        scaler: Callable[[], Any] | None = None,
        **options: Any,
    ) -> None:
        """Take arguments of the step, of the loop, and of the optimizer."""
        made = twins(model or classifier(), kind, **{"lr": 0.1} | options)
        (self.theirs, self.their_optimizer), (self.ours, self.our_optimizer) = made
        self.loss_fn, self.loop = loss_fn, loop or {}
        self.schedulers = [
            scheduler and scheduler(o)
            for o in (self.their_optimizer, self.our_optimizer)
        ]
        self.scalers = [scaler and scaler() for _ in range(2)]
        self.step = npu_dispatch.compile_step(
            self.ours,
            self.our_optimizer,
            loss_fn,
            scheduler=self.schedulers[1],
            scaler=self.scalers[1],
            **{"backend": "eager"} | self.loop | (step or {}),
        )
        self.want: list[float] = []
        self.got: list[float] = []

    def train(self, data: Iterable[Batch]) -> None:
        """Train both."""
        data = list(data)
        self.train_theirs(data)
        self.got += [v.item() for v in [self.step(x, y) for x, y in data]]

    def train_theirs(self, data: Iterable[Batch]) -> None:
        self.want += plain_loop(
            self.theirs,
            self.their_optimizer,
            data,
            scheduler=self.schedulers[0],
            scaler=self.scalers[0],
            loss_fn=self.loss_fn,
            **self.loop,
        )

    def compare(
        self, captures: int | None = None, rtol: float = 1e-4, atol: float = 1e-5
    ) -> None:
        """Compare losses, parameters and states.

        With a number of captures, none of the steps may run as the plain loop does.
        """
        close = {"rtol": rtol, "atol": atol}
        torch.testing.assert_close(self.got, self.want, **close)
        for mine, other in (
            (self.ours, self.theirs),
            (self.our_optimizer, self.their_optimizer),
        ):
            torch.testing.assert_close(values(mine), values(other), **close)
        if captures is not None:
            assert (self.step.reason, self.step.captures) == (None, captures)


def values(holder: nn.Module | torch.optim.Optimizer) -> dict[str, Any]:
    """Return a state_dict on the host: parameters, or states by number and name."""
    state = holder.state_dict()
    if isinstance(holder, nn.Module):
        return {k: v.cpu() for k, v in state.items()}
    return {
        f"{i}.{k}": v.cpu() if isinstance(v, Tensor) else v
        for i, entry in state["state"].items()
        for k, v in entry.items()
    }
