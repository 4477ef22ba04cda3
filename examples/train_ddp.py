"""Train the GPT on several processes, each with a part of the batch.

    torchrun --nproc-per-node 2 examples/train_ddp.py
    torchrun --nproc-per-node 2 --nnodes 2 --node-rank 0 \
        --master-addr HOST --master-port 29500 examples/train_ddp.py

Each process draws its own batches; DistributedDataParallel averages the
gradients while the backward pass goes on.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import click
import gpt
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


@click.command()
@click.option("--device", default="npu", show_default=True)
@click.option("--size", type=click.Choice(list(gpt.SIZES)), default="tiny")
@click.option("--steps", default=20, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--lr", default=1e-3, show_default=True)
@click.option("--losses", "log", type=click.Path(path_type=Path), help="JSON lines.")
def main(
    device: str, size: str, steps: int, seed: int, lr: float, log: Path | None
) -> None:
    """Train; rank 0 prints the mean loss of all ranks."""
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if device == "npu":
        torch.npu.set_device(local)
    # The backend goes with the device: gloo for cpu, hccl for npu.
    dist.init_process_group("gloo" if device == "cpu" else None)
    means = train(torch.device(device), size, steps, seed, lr)
    if dist.get_rank() == 0:
        ranks = dist.get_world_size()
        print(f"{ranks} ranks on {device}: loss {means[0]:.3f} -> {means[-1]:.3f}")
        if log:
            log.write_text("".join(json.dumps({"loss": m}) + "\n" for m in means))
    dist.destroy_process_group()


def train(
    device: torch.device, size: str, steps: int, seed: int, lr: float
) -> list[float]:
    """Train on this rank of the default group; return each step's mean loss."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(seed)
    batches = torch.Generator().manual_seed(seed * ranks + rank)
    text = gpt.standard_library()
    model = DistributedDataParallel(_Loss(gpt.GPT(gpt.SIZES[size])).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    losses = []
    for _ in range(steps):
        batch = gpt.draw_batch(text, gpt.SIZES[size], batches)
        optimizer.zero_grad(set_to_none=True)
        loss = model(batch.to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    means = torch.stack(losses)
    dist.all_reduce(means)
    return (means / ranks).tolist()


class _Loss(torch.nn.Module):
    """The model's loss as a forward pass, which is what DDP looks at."""

    def __init__(self, model: gpt.GPT) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.model.loss(batch)


if __name__ == "__main__":
    main()
