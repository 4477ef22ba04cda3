"""How streams share the cores: throughput of two streams against one.

`small` kernels are told to run on one thread each, so two streams have two cores to
themselves. Kernels `in_pieces`, as the same ones are by default, and `large` ones use
both cores already in one stream, and must not fight for them when two streams run them
at the same time.

The caller, which feeds both streams, needs a core too while it launches. Where a
kernel takes little longer than a launch, the caller is the limit.
"""

from __future__ import annotations

import statistics
from functools import partial

import torch
from _harness import Effort, Only, bench, clock, emit, in_turns

# name: side of the square matrices, products of each stream in a block
CASES = {
    "small_64": (64, 3000),
    "small_96": (96, 2000),
    "small_128": (128, 1000),
    "small_160": (160, 600),
    "small_180": (180, 400),
    "in_pieces_180": (180, 400),
    "large_640": (640, 8),
}
# Kernels of 90-140 us: long enough for one caller to feed two streams.
WARM_UPS = 3


def block(matrices: list[torch.Tensor], streams: list, n: int) -> float:
    """Products per second of `n` on each of `streams`, from idle."""
    torch.npu.synchronize()
    began = clock()
    for _ in range(n):
        for a, stream in zip(matrices, streams, strict=False):
            with torch.npu.stream(stream):
                torch.mm(a, a)
    torch.npu.synchronize()
    return n * len(streams) / (clock() - began) * 1e9


@bench(repetitions=(17, 7, 1))
def main(repetitions: int, only: Only, effort: Effort) -> None:
    """Print a JSON line per case."""
    streams = [torch.npu.Stream() for _ in range(2)]
    warm_ups = 0 if effort is Effort.SMOKE else WARM_UPS
    threads = torch.get_num_threads()
    for name in filter(only, CASES):
        side, most = CASES[name]
        torch.set_num_threads(1 if name.startswith("small") else threads)
        n = 1 if effort is Effort.SMOKE else most
        matrices = [torch.rand(side, side).npu() for _ in streams]
        blocks = {
            count: partial(block, matrices, streams[:count], 2 * n // count)
            for count in (1, 2)
        }
        one, two = map(
            statistics.median, in_turns(blocks, repetitions, warm_ups).values()
        )
        emit(
            case=f"two_streams_{name}",
            one_stream_per_s=round(one),
            two_streams_per_s=round(two),
            ratio=round(two / one, 2),
            kernel_us=round(1e6 / one, 1),
            kept=repetitions,
            warm_ups=warm_ups,
        )


if __name__ == "__main__":
    main()
