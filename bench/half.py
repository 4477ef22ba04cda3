"""What products and convolutions of float16 cost on npu, against float32.

torch's cpu kernels use no vector instructions for most of them, so that the device
converts, computes in float32 and converts back (csrc/host/half_products.cpp). Blocks of
both types alternate. `cpu_ratio` is the same on cpu.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch
import torch.nn.functional as F
from _harness import Only, bench, emit, in_turns
from _peers import CPU, NPU, Call, Peer, timed_block
from torch import Tensor

# Rows, what is summed over and columns; which of both is transposed.
CASES = (
    *("mm_1x512x512_nn", "mm_1x512x512_nt", "mm_1x512x512_tn", "mm_1x512x512_tt"),
    *("mm_64x512x512_nn", "mm_64x512x512_nt", "mm_64x512x512_tn", "mm_64x512x512_tt"),
    *("conv2d_8", "conv2d_grad_8", "conv2d_64", "conv2d_grad_64"),
)
WARM_UPS = 2
BLOCK_S = 0.01


def product(size: str, layout: str, like: Tensor) -> Call:
    rows, between, columns = map(int, size.split("x"))
    pair = torch.randn(rows, between).to(like), torch.randn(between, columns).to(like)
    a, b = (
        t.t().contiguous().t() if letter == "t" else t
        for t, letter in zip(pair, layout, strict=True)
    )
    return lambda: torch.mm(a, b)


def convolution(channels: int, like: Tensor) -> Call:
    x = torch.randn(4, channels, 32, 32).to(like)
    weight = torch.randn(channels, channels, 3, 3).to(like)
    return lambda: F.conv2d(x, weight, padding=1)


def gradients(channels: int, like: Tensor) -> Call:
    x = torch.randn(4, channels, 32, 32).to(like).requires_grad_()
    weight = torch.randn(channels, channels, 3, 3).to(like).requires_grad_()
    bias = torch.randn(channels).to(like).requires_grad_()
    of_result = torch.randn(4, channels, 32, 32).to(like)
    return lambda: torch.autograd.grad(
        F.conv2d(x, weight, bias, padding=1), (x, weight, bias), of_result
    )


def make(case: str, like: Tensor) -> Call:
    kind, *how = case.split("_")
    if kind == "mm":
        return product(*how, like)
    return (gradients if how[0] == "grad" else convolution)(int(how[-1]), like)


def ratio_of(case: str, peer: Peer, repetitions: int) -> tuple[float, float]:
    """Return the median of float16's over float32's time, and float16's in us."""

    def block(dtype: torch.dtype) -> Callable[[], float]:
        call = make(case, torch.zeros(1, dtype=dtype, device=peer.device))
        count = max(1, round(BLOCK_S * 1e6 / timed_block(call, 3, peer).total))
        return lambda: timed_block(call, count, peer).total

    blocks = {dtype: block(dtype) for dtype in (torch.float16, torch.float32)}
    half, single = in_turns(blocks, repetitions, WARM_UPS).values()
    ratio = statistics.median(a / b for a, b in zip(half, single, strict=True))
    return ratio, statistics.median(half)


@bench(repetitions=(15, 7, 1))
def main(repetitions: int, only: Only) -> None:
    """Print a JSON line per layout."""
    for case in filter(only, CASES):
        npu, us = ratio_of(case, NPU, repetitions)
        cpu, _ = ratio_of(case, CPU, max(1, repetitions // 3))
        emit(
            case=case,
            ratio=round(npu, 3),
            cpu_ratio=round(cpu, 3),
            npu_us=round(us, 1),
            kept=repetitions,
            warm_ups=WARM_UPS,
        )


if __name__ == "__main__":
    main()
