"""What one small operator costs its caller, npu against cpu.

Two figures per case: `host`, until the call returns, and `total`, until its
task is retired. The queue never fills: a block is shorter than the ring.
"""

from __future__ import annotations

import click
import torch
from _harness import compare, emit, geometric_mean, machine, serve_if_worker


def cases(device: str):
    """Return {name: call} on 8x8 tensors."""
    torch.manual_seed(0)
    a, b, out = (torch.rand(8, 8).to(device) for _ in range(3))
    x = torch.rand(8, 8).to(device)
    linear = torch.nn.Linear(8, 8).to(device)
    host = torch.rand(8, 8).to(device)
    return {
        "add": lambda: torch.add(a, b),
        "add_out": lambda: torch.add(a, b, out=out),
        "add_": lambda: x.add_(b),
        "mm": lambda: torch.mm(a, b),
        "relu_": lambda: x.relu_(),
        "sum": lambda: a.sum(),
        "cat": lambda: torch.cat((a, b)),
        "softmax": lambda: torch.softmax(a, -1),
        "view": lambda: a.view(64),
        "copy_": lambda: out.copy_(host),
        "linear_grad": lambda: linear(a),
    }


@click.command()
@click.option("--calls", default=500, show_default=True, help="Calls in a block.")
@click.option("--repetitions", default=24, show_default=True)
@click.option("--only", default="", help="Cases whose name contains this.")
def main(calls: int, repetitions: int, only: str) -> None:
    """Print a JSON line per case, then the geometric means."""
    emit(bench="launch", calls=calls, repetitions=repetitions, **machine())
    host_ratios, total_ratios = [], []
    for name in cases("cpu"):
        if only not in name:
            continue
        times = compare(name, calls, repetitions, same_cpu=True)
        cpu, npu = times["cpu"], times["npu"]
        host_ratios.append(npu.host / cpu.host)
        total_ratios.append(npu.total / cpu.total)
        emit(
            case=name,
            cpu_us=round(cpu.host, 3),
            npu_us=round(npu.host, 3),
            ratio=round(host_ratios[-1], 3),
            npu_total_us=round(npu.total, 3),
            total_ratio=round(total_ratios[-1], 3),
        )
    emit(
        geometric_mean=len(host_ratios),
        ratio=round(geometric_mean(host_ratios), 3),
        total_ratio=round(geometric_mean(total_ratios), 3),
    )


if __name__ == "__main__":
    serve_if_worker(lambda device, case: cases(device)[case])
    main()
