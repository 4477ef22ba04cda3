"""Measure the device that this process has, and write a spec of it.

With a spec of the driver `host`, a plan can be compared with a real run.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Mapping

import torch
import torch.nn.functional as F

from npu_dispatch import npu
from npu_dispatch.plan.probes import (
    common_kernels,
    device_us,
    latencies_us,
    training_rate,
)

__all__ = ["measure", "spec_text"]

# Elements: of what fits into a cache and of what does not, and of next to nothing.
_CACHED, _LARGE, _SMALL = 1 << 16, 1 << 22, 256
_FLOAT = 4  # bytes
# Channels and sides of images, as in the stages of a residual network.
_IMAGES = (64, 32), (128, 16), (256, 8), (512, 4)
_STEPS = 16  # in time, of an LSTM layer
_PARTS_OF_MEMORY = ("function", "reduction", "gather")


def _product_rate(dtype: torch.dtype, *sizes: int) -> float:
    """Return TFLOP/s of products of square matrices, as long in each size."""
    slowness = 0.0
    for n in sizes:
        a, b, c = (torch.ones(n, n, dtype=dtype, device="npu") for _ in range(3))
        slowness += device_us(lambda: torch.mm(a, b, out=c)) / (2 * n**3)  # noqa: B023
    return len(sizes) / slowness / 1e6


def _convolution_rate(*sizes: tuple[int, int], each: bool = False) -> float:
    """Return TFLOP/s of 3x3 convolutions in training, as often in each size.

    A size is that of channels, all of which or `each` alone are filtered, and that of
    the images' sides.
    """
    slowness = 0.0
    for channels, side in sizes:
        groups = channels if each else 1
        layer = torch.nn.Conv2d(
            channels, channels, 3, padding=1, groups=groups, device="npu"
        )
        x = torch.rand(8, channels, side, side, device="npu")
        flops = 3 * 2 * x.numel() * channels // groups * 9
        slowness += 1 / training_rate(layer, x, flops)
    return len(sizes) / slowness


def _attention_rate() -> float:
    """Return TFLOP/s of attention over 128 tokens in training, with 8 heads of 32.

    It has two products forward and five backward, as torch counts them.
    """
    x = torch.rand(4, 8, 128, 32, device="npu")
    flops = 7 * 2 * x.numel() * 128
    return training_rate(lambda q: F.scaled_dot_product_attention(q, q, q), x, flops)


def _lstm(width: int, batch: int) -> tuple[float, float]:
    """Return how many operations an LSTM layer has in training, and how long it takes
    the device in us."""
    layer = torch.nn.LSTM(width, width, device="npu")
    x = torch.rand(_STEPS, batch, width, device="npu", requires_grad=True)
    grad = torch.ones_like(layer(x)[0])
    us = device_us(lambda: torch.autograd.backward(layer(x)[0], grad))
    return 3 * 2 * x.numel() * 8 * width, us


def _recurrence(kernel_us: float) -> tuple[float, float]:
    """Return TFLOP/s of LSTM layers, and how long a time step takes beside, in us.

    Steps of the way back take as long as others.
    """
    (less, short), (more, long) = _lstm(64, 8), _lstm(192, 16)
    rate = (more - less) / max(long - short, 0.1) / 1e6
    step = (short - 2 * kernel_us - less / rate / 1e6) / (2 * _STEPS)
    return rate, max(step, 0.0)


def _kernel_us() -> float:
    """Return how long most kernels take that have next to nothing to do."""
    return statistics.median(device_us(call) for _, call, _ in common_kernels(_SMALL))


def _bandwidths(n: int, kernel_us: float) -> dict[str, float]:
    """Return GB/s of each kind of kernels, whose tensors have so many elements."""
    moved: dict[str, int] = defaultdict(int)
    us: dict[str, float] = defaultdict(float)
    for kind, call, tensors in common_kernels(n):
        moved[kind] += tensors * n * _FLOAT
        us[kind] += max(device_us(call) - kernel_us, 0.1)
    return {kind: moved[kind] / us[kind] / 1e3 for kind in moved}


def measure() -> dict[str, dict[str, float]]:
    """Return the tables of a spec of this process's device. It takes some seconds."""
    host = torch.ones(1 << 23).pin_memory()
    there = torch.ones(1 << 23, device="npu")
    copy_us = device_us(lambda: there.copy_(host, non_blocking=True))
    launch, complete = latencies_us()
    kernel = _kernel_us()
    fp32 = _product_rate(torch.float32, 128, 256, 768)
    recurrent, step = _recurrence(kernel)
    cached, large = _bandwidths(_CACHED, kernel), _bandwidths(_LARGE, kernel)

    def part_of_memory(kind: str) -> float:
        ratios = [rates[kind] / rates["stream"] for rates in (cached, large)]
        return min(statistics.geometric_mean(ratios), 1.0)

    rates = {
        "convolution": _convolution_rate(*_IMAGES),
        "depthwise": _convolution_rate(*_IMAGES[:2], each=True),
        "attention": _attention_rate(),
        "recurrent": recurrent,
    }
    return {
        "memory": {
            "gib": npu.get_device_properties(0).total_memory / 2**30,
            "gb_per_s": large["stream"],
            "cache_mib": 4,
            "cache_gb_per_s": cached["stream"],
        },
        "tflops": {
            "fp64": _product_rate(torch.float64, 512),
            "fp32": fp32,
            "fp16": _product_rate(torch.bfloat16, 512),
            "int8": fp32,
        },
        "link": {"gb_per_s": _FLOAT * 2**23 / copy_us / 1e3, "copy_engines": 1},
        "latency_us": {
            "launch": launch,
            "kernel": kernel,
            "complete": complete,
            "copy": kernel,
            "step": step,
        },
        "efficiency": {
            **{kind: min(rate / fp32, 1.0) for kind, rate in rates.items()},
            **{kind: part_of_memory(kind) for kind in _PARTS_OF_MEMORY},
        },
        "queues": {"concurrency": 1},
    }


def spec_text(name: str, tables: Mapping[str, Mapping[str, float]]) -> str:
    """Return a spec of what was measured."""
    lines = [
        "# Measured: not the peak of a data sheet, but what programs reach. fp16 is",
        "# that of bfloat16; int8 is not measured, and that of fp32.",
        f'name = "{name}"',
        'source = "npu-dispatch calibrate"',
        f'date = "{time.strftime("%Y-%m-%d")}"',
    ]
    for title, figures in tables.items():
        lines += ["", f"[{title}]"]
        lines += [f"{key} = {value:.4g}" for key, value in figures.items()]
    return "\n".join([*lines, ""])
