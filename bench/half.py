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
from _peers import CPU, NPU, Peer, timed_block
from torch import Tensor

# rows, what is summed over, columns
SIZES = {"1x512x512": (1, 512, 512), "64x512x512": (64, 512, 512)}
CHANNELS = (8, 64)
WARM_UPS = 2
BLOCK_S = 0.01


def laid_out(t: Tensor, transposed: bool) -> Tensor:
    return t.t().contiguous().t() if transposed else t


def product(
    size: tuple[int, int, int], layout: tuple[bool, bool], like: Tensor
) -> Callable[[], object]:
    rows, between, columns = size
    a = laid_out(torch.randn(rows, between).to(like), layout[0])
    b = laid_out(torch.randn(between, columns).to(like), layout[1])
    return lambda: torch.mm(a, b)


def convolution(channels: int, like: Tensor) -> Callable[[], object]:
    x = torch.randn(4, channels, 32, 32).to(like)
    weight = torch.randn(channels, channels, 3, 3).to(like)
    return lambda: F.conv2d(x, weight, padding=1)


def gradients(channels: int, like: Tensor) -> Callable[[], object]:
    x = torch.randn(4, channels, 32, 32).to(like).requires_grad_()
    weight = torch.randn(channels, channels, 3, 3).to(like).requires_grad_()
    bias = torch.randn(channels).to(like).requires_grad_()
    of_result = torch.randn(4, channels, 32, 32).to(like)
    return lambda: torch.autograd.grad(
        F.conv2d(x, weight, bias, padding=1), (x, weight, bias), of_result
    )


def cases() -> dict[str, Callable[[Tensor], Callable[[], object]]]:
    found: dict[str, Callable[[Tensor], Callable[[], object]]] = {}
    for name, size in SIZES.items():
        for a in (False, True):
            for b in (False, True):
                case = f"mm_{name}_{'t' if a else 'n'}{'t' if b else 'n'}"
                found[case] = lambda like, s=size, a=a, b=b: product(s, (a, b), like)
    for channels in CHANNELS:
        found[f"conv2d_{channels}"] = lambda like, c=channels: convolution(c, like)
        found[f"conv2d_grad_{channels}"] = lambda like, c=channels: gradients(c, like)
    return found


def ratio_of(
    make: Callable[[Tensor], Callable[[], object]], peer: Peer, repetitions: int
) -> tuple[float, float]:
    """Return the median of float16's over float32's time, and float16's in us."""

    def block(dtype: torch.dtype) -> Callable[[], float]:
        call = make(torch.zeros(1, dtype=dtype, device=peer.device))
        count = max(1, round(BLOCK_S * 1e6 / timed_block(call, 3, peer).total))
        return lambda: timed_block(call, count, peer).total

    blocks = {dtype: block(dtype) for dtype in (torch.float16, torch.float32)}
    half, single = in_turns(blocks, repetitions, WARM_UPS).values()
    ratio = statistics.median(a / b for a, b in zip(half, single, strict=True))
    return ratio, statistics.median(half)


@bench(repetitions=(15, 7, 1))
def main(repetitions: int, only: Only) -> None:
    """Print a JSON line per layout."""
    made = cases()
    for case in filter(only, made):
        npu, us = ratio_of(made[case], NPU, repetitions)
        cpu, _ = ratio_of(made[case], CPU, max(1, repetitions // 3))
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
