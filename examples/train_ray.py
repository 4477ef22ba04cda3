"""Train the GPT on workers that Ray starts, each with a device of its own.

    pip install ray
    python examples/train_ray.py --workers 2

Ray finds no devices by itself: it is told how many there are, as a resource. It shows
each worker those that it gave it, in ASCEND_RT_VISIBLE_DEVICES; NPU_DISPATCH_DEVICES
says how many there are to choose from.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import click
import ray
import torch
import torch.distributed as dist
import train_ddp


@ray.remote
class Worker:
    """One rank of the group, in a process of its own."""

    def address(self) -> str:
        """Return where the ranks can meet: a port of this worker's host."""
        with socket.socket() as free:
            free.bind(("", 0))
            return f"tcp://{ray.util.get_node_ip_address()}:{free.getsockname()[1]}"

    def train(
        self, rank: int, ranks: int, meet: str, device: str, how: dict[str, Any]
    ) -> list[float]:
        backend = "gloo" if device == "cpu" else None  # hccl, by itself
        dist.init_process_group(backend, init_method=meet, rank=rank, world_size=ranks)
        # The device that Ray gave this worker is the only one that it sees.
        means = train_ddp.train(torch.device(device), **how)
        dist.destroy_process_group()
        return means


@click.command()
@click.option("--workers", default=2, show_default=True)
@click.option("--device", default="npu", show_default=True)
@click.option("--size", default="tiny", show_default=True)
@click.option("--steps", default=20, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--lr", default=1e-3, show_default=True)
@click.option("--losses", "log", type=click.Path(path_type=Path), help="JSON lines.")
def main(
    workers: int,
    device: str,
    size: str,
    steps: int,
    seed: int,
    lr: float,
    log: Path | None,
) -> None:
    """Train; print the mean loss of all workers."""
    # On a cluster: each node's `ray start --resources '{"NPU": 2}'`, and no
    # resources and num_cpus here.
    ray.init(
        resources={"NPU": workers},
        num_cpus=workers,
        runtime_env={"env_vars": {"NPU_DISPATCH_DEVICES": str(workers)}},
    )
    needs = {"NPU": 1} if device == "npu" else {}
    started = [
        Worker.options(num_cpus=1, resources=needs).remote() for _ in range(workers)
    ]
    meet = ray.get(started[0].address.remote())
    how = {"size": size, "steps": steps, "seed": seed, "lr": lr}
    means = ray.get(
        [
            worker.train.remote(rank, workers, meet, device, how)
            for rank, worker in enumerate(started)
        ]
    )[0]
    print(f"{workers} workers on {device}: loss {means[0]:.3f} -> {means[-1]:.3f}")
    if log:
        log.write_text("".join(json.dumps({"loss": m}) + "\n" for m in means))
    ray.shutdown()


if __name__ == "__main__":
    main()
