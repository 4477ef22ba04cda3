"""Train a small GPT three ways: on cpu, on npu, and on npu with whole steps.

Each prints its first and last loss and what a step takes. The whole step is one
graph: forward, backward, clipping, AdamW, and the rate of a schedule.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import click
import gpt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import npu_dispatch

CLIP = 1.0


def loss_fn(logits: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())


def plain_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, scheduler: object
) -> Callable[[Tensor, Tensor], Tensor]:
    """Return what compile_step() stands for."""

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        scheduler.step()
        return loss.detach()

    return step


def train(
    device: str, whole: bool, steps: int, backend: str
) -> tuple[list[float], float]:
    """Return the losses, and the seconds of a step once it is warm."""
    torch.manual_seed(0)
    size = gpt.SIZES["tiny"]
    model = gpt.GPT(size).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    if whole:
        step = npu_dispatch.compile_step(
            model,
            optimizer,
            loss_fn,
            scheduler=scheduler,
            clip_grad_norm=CLIP,
            backend=backend,
        )
    else:
        step = plain_step(model, optimizer, scheduler)

    text = gpt.standard_library(200_000)
    generator = torch.Generator().manual_seed(1)
    losses = []
    began, warm = 0.0, steps // 2
    for i in range(steps):
        if i == warm:
            losses[-1].item()  # all that came before is done
            began = time.perf_counter()
        batch = gpt.draw_batch(text, size, generator).to(device)
        losses.append(step(batch[:, :-1], batch[:, 1:]))
    values = [loss.item() for loss in losses]
    return values, (time.perf_counter() - began) / (steps - warm)


@click.command()
@click.option("--steps", default=200, show_default=True)
@click.option("--backend", default="inductor", show_default=True)
def main(steps: int, backend: str) -> None:
    """Compare three ways to train."""
    for name, device, whole in (
        ("cpu", "cpu", False),
        ("npu", "npu", False),
        ("npu, whole steps", "npu", True),
    ):
        losses, seconds = train(device, whole, steps, backend)
        print(
            f"{name}: loss {losses[0]:.4f} to {losses[-1]:.4f}, "
            f"{seconds * 1e3:.2f} ms a step"
        )


if __name__ == "__main__":
    main()
