"""The plain training loop that compile_step() stands for, and batches for both."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

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
