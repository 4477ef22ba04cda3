"""What a training step costs until it is retired, npu against cpu.

Small MLP, tiny GPT and LSTM are bound by launches, wide GPT and CNN by arithmetic.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click
import torch
import torch.nn.functional as F
from _harness import compare, emit, geometric_mean, machine, serve_if_worker
from models import Tagger, resnet18
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
import gpt


def mlp(device: str):
    """Three layers of width 64, batch 32, SGD."""
    torch.manual_seed(0)
    layers = [nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(64, 64)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.rand(32, 64).to(device), torch.rand(32, 64).to(device)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        F.mse_loss(model(x), y).backward()
        optimizer.step()

    return step


def gpt_step(size: str):
    def make(device: str):
        torch.manual_seed(0)
        model = gpt.GPT(gpt.SIZES[size])
        model.to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        shape = (model.size.batch, model.size.context + 1)
        batch = torch.randint(256, shape).to(device)

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            model.loss(batch).backward()
            optimizer.step()

        return step

    return make


def cnn(device: str):
    """ResNet-18 on 32x32 images, batch 8, SGD with momentum."""
    torch.manual_seed(0)
    model = resnet18().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x = torch.rand(8, 3, 32, 32).to(device)
    y = torch.randint(10, (8,)).to(device)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def lstm(device: str):
    """Two LSTM layers of width 64 over 16 time steps, batch 8, Adam."""
    torch.manual_seed(0)
    model = Tagger().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x = torch.rand(8, 16, 32).to(device)
    y = torch.randint(10, (8 * 16,)).to(device)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(x).flatten(0, 1), y).backward()
        optimizer.step()

    return step


# name: (how to make a step, steps in a block)
CASES = {
    "mlp": (mlp, 30),
    "gpt_tiny": (gpt_step("tiny"), 5),
    "gpt_wide": (gpt_step("wide"), 1),
    "cnn": (cnn, 1),
    "lstm": (lstm, 5),
}


@click.command()
@click.option("--repetitions", default=12, show_default=True)
@click.option("--only", default="", help="Cases whose name contains this.")
def main(repetitions: int, only: str) -> None:
    """Print a JSON line per case, then the geometric mean."""
    emit(bench="train", repetitions=repetitions, **machine())
    ratios = []
    for name, (_, steps) in CASES.items():
        if only not in name:
            continue
        times = compare(name, steps, repetitions, same_cpu=True)
        cpu, npu = times["cpu"], times["npu"]
        ratios.append(npu.total / cpu.total)
        emit(
            case=name,
            cpu_us=round(cpu.total, 1),
            npu_us=round(npu.total, 1),
            ratio=round(ratios[-1], 3),
            npu_host_us=round(npu.host, 1),
        )
    emit(geometric_mean=len(ratios), ratio=round(geometric_mean(ratios), 3))


if __name__ == "__main__":
    serve_if_worker(lambda device, case: CASES[case][0](device))
    main()
