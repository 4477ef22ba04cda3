"""What a replayed graph costs until it is retired, against the same code on cpu.

Also the host's cost of `replay()` for short and long graphs, and what many
replays leave behind.
"""

from __future__ import annotations

import gc
import resource
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import click
import torch
from _harness import compare, emit, machine, serve_if_worker, timed_block
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
import gpt
import train

Call = Callable[[], object]


def replayed(step: Call, device: str) -> Call:
    """Return `step` itself on cpu, and its replay on npu."""
    if device == "cpu":
        return step
    for _ in range(3):
        step()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        step()
    return graph.replay


def forward(device: str) -> Call:
    """16 linear layers of width 16, with ReLU between; batch 16, no gradients."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(16):
        layers += [nn.Linear(16, 16), nn.ReLU()]
    model = nn.Sequential(*layers).to(device)
    x = torch.rand(16, 16).to(device)

    @torch.no_grad()
    def step() -> None:
        model(x)

    return replayed(step, device)


def mlp_step(device: str) -> Call:
    """The small MLP's training step of bench/train.py."""
    return replayed(train.mlp(device), device)


def gpt_step(fused: bool | None) -> Callable[[str], Call]:
    """Forward, backward and AdamW of a GPT of two layers of width 64.

    `fused=None` leaves the kind of kernels to torch's default for the device.
    """

    def make(device: str) -> Call:
        torch.manual_seed(0)
        model = gpt.GPT(gpt.SIZES["tiny"])
        model.to(device)
        # A graph needs the step count on the device.
        optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=1e-3,
            fused=fused,
            capturable=device == "npu" and not fused,
        )
        shape = (model.size.batch, model.size.context + 1)
        batch = torch.randint(256, shape).to(device)

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            model.loss(batch).backward()
            optimizer.step()

        return replayed(step, device)

    return make


# name: (how to make the call, calls in a block, the most it may cost)
CASES = {
    "mlp_16x16_forward": (forward, 100, 0.30),
    "mlp_step": (mlp_step, 30, 0.35),
    "gpt_tiny_step": (gpt_step(fused=None), 5, 0.60),
    "gpt_tiny_fused_step": (gpt_step(fused=True), 5, 0.60),
}


def host_cost(length: int, repetitions: int) -> float:
    """Microseconds that the caller of replay() spends, for `length` nodes."""
    x = torch.zeros(8, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        for _ in range(length):
            x.add_(1)
    blocks = [timed_block(graph.replay, 200, "npu").host for _ in range(repetitions)]
    return statistics.median(blocks)


def leftovers(replays: int) -> tuple[int, int]:
    """Bytes that the process and the allocator grow by over many replays."""
    x = torch.zeros(8, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        torch.rand(8, device="npu").add_(x)

    def many(count: int) -> None:
        for _ in range(count):
            graph.replay()
        torch.npu.synchronize()

    def sizes() -> tuple[int, int]:
        gc.collect()
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return rss, torch.npu.memory_reserved()

    many(10_000)
    before = sizes()
    many(replays)
    after = sizes()
    return after[0] - before[0], after[1] - before[1]


@click.command()
@click.option("--repetitions", default=12, show_default=True)
@click.option("--replays", default=1_000_000, show_default=True, help="For the leaks.")
@click.option("--only", default="", help="Cases whose name contains this.")
def main(repetitions: int, replays: int, only: str) -> None:
    """Print a JSON line per case."""
    emit(bench="graphs", repetitions=repetitions, **machine())
    for name, (_, steps, most) in CASES.items():
        if only not in name:
            continue
        times = compare(name, steps, repetitions, same_cpu=True)
        cpu, npu = times["cpu"], times["npu"]
        emit(
            case=name,
            cpu_us=round(cpu.total, 1),
            replay_us=round(npu.total, 1),
            ratio=round(npu.total / cpu.total, 3),
            allowed=most,
            replay_host_us=round(npu.host, 2),
        )
    for length in (1, 10, 100, 1000):
        if only in "host":
            cost = host_cost(length, repetitions)
            emit(case="host", nodes=length, replay_us=round(cost, 2), allowed=2.0)
    if only in "leaks":
        process, allocator = leftovers(replays)
        emit(
            case="leaks",
            replays=replays,
            process_bytes=process,
            allocator_bytes=allocator,
        )


if __name__ == "__main__":
    serve_if_worker(lambda device, case: CASES[case][0](device))
    main()
