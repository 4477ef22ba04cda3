"""How streams share the cores: throughput of two streams against one.

`small` kernels run on one thread each, so two streams have two cores to
themselves. `large` kernels use several threads, and must not fight for cores
when two streams run them at the same time.
"""

from __future__ import annotations

import statistics

import click
import torch
from _harness import clock, emit, machine

# name: (side of the square matrices, products in a block)
CASES = {"small": (160, 200), "large": (640, 8)}


def block(matrices: list[torch.Tensor], streams: list, n: int) -> float:
    """Return products per second of `n` on each of `streams`, from idle."""
    torch.npu.synchronize()
    began = clock()
    for _ in range(n):
        for a, stream in zip(matrices, streams, strict=False):
            with torch.npu.stream(stream):
                torch.mm(a, a)
    torch.npu.synchronize()
    return n * len(streams) / (clock() - began) * 1e9


@click.command()
@click.option("--repetitions", default=30, show_default=True)
def main(repetitions: int) -> None:
    """Print a JSON line per case."""
    emit(bench="cores", repetitions=repetitions, **machine())
    streams = [torch.npu.Stream() for _ in range(2)]
    for name, (side, n) in CASES.items():
        matrices = [torch.rand(side, side).npu() for _ in streams]
        rates: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(repetitions):
            for count, values in rates.items():
                values.append(block(matrices, streams[:count], 2 * n // count))
        one, two = (statistics.median(values[3:]) for values in rates.values())
        emit(
            case=f"two_streams_{name}",
            one_stream_per_s=round(one),
            two_streams_per_s=round(two),
            ratio=round(two / one, 2),
        )


if __name__ == "__main__":
    main()
