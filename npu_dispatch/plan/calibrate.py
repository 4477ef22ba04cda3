"""Measure the device that this process has, and write a sheet of it.

With a sheet of the driver `host`, an emulated run can be compared with a real one.
The sheet gives launch and completion no time of their own, because the engine takes
its real time for them in an emulated run, too.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from npu_dispatch import npu

__all__ = ["measure", "sheet_text"]

_REPEATS = 7


def _us(call: Callable[[], object], times: int) -> float:
    """Return how long a call takes the device, behind a queue that is not empty.

    This is the least of several, because others on this machine can only make it
    longer.
    """
    found = []
    for _ in range(_REPEATS):
        start, end = (npu.Event(enable_timing=True) for _ in range(2))
        npu._sleep(2_000_000)
        start.record()
        for _ in range(times):
            call()
        end.record()
        end.synchronize()
        found.append(start.elapsed_time(end) * 1e3 / times)
    return min(found)


def _tflops(dtype: torch.dtype, n: int) -> float:
    a, b, c = (torch.ones(n, n, dtype=dtype, device="npu") for _ in range(3))
    return 2 * n**3 / _us(lambda: torch.mm(a, b, out=c), 3) / 1e6


def _convolution(tflops: float) -> float:
    """Return which part of a matrix product's rate convolutions reach in training.

    It is measured with a 3x3 convolution of 64 channels, forward and backward.
    """
    layer = torch.nn.Conv2d(64, 64, 3, padding=1, device="npu")
    x = torch.ones(8, 64, 28, 28, device="npu", requires_grad=True)
    y = layer(x)
    grad = torch.ones_like(y)
    us = _us(lambda: layer(x).backward(grad), 3)
    flops = 3 * 2 * y.numel() * 64 * 9
    return float(min(flops / us / 1e6 / tflops, 1.0))


def _recurrent(tflops: float) -> float:
    """Return the same part for an LSTM layer of width 128 and batch 16."""
    layer = torch.nn.LSTM(128, 128, device="npu")
    x = torch.ones(32, 16, 128, device="npu", requires_grad=True)
    grad = torch.ones(32, 16, 128, device="npu")
    us = _us(lambda: layer(x)[0].backward(grad), 2)
    flops = 3 * 2 * 32 * 16 * 128 * 8 * 128
    return min(flops / us / 1e6 / tflops, 1.0)


def _lstm_step(kernel_us: float) -> float:
    """Return how long a time step takes that has next to nothing to compute."""
    layer = torch.nn.LSTM(16, 16, device="npu")
    x = torch.ones(64, 4, 16, device="npu")
    with torch.no_grad():
        return max(_us(lambda: layer(x), 3) - kernel_us, 0) / 64


def _bandwidth(mib: float, kernel_us: float) -> float:
    """Return GB/s of an addition that touches so many MiB."""
    n = int(mib * 2**20 / 3 / 4)
    a, b, c = (torch.ones(n, device="npu") for _ in range(3))
    us = _us(lambda: torch.add(a, b, out=c), 5) - kernel_us
    return 12 * n / max(us, 0.1) / 1e3


def measure() -> dict[str, float]:
    """Return this process's device in TFLOP/s, GB/s and us. It takes some seconds."""
    small = [torch.ones(8, device="npu") for _ in range(3)]
    host = torch.ones(1 << 23).pin_memory()
    there = torch.ones(1 << 23, device="npu")
    trips = []
    for _ in range(200):
        begun = time.perf_counter()
        torch.add(small[0], small[1], out=small[2])
        npu.synchronize()
        trips.append((time.perf_counter() - begun) * 1e6)
    copy_us = _us(lambda: there.copy_(host, non_blocking=True), 2)
    kernel = _us(lambda: torch.add(small[0], small[1], out=small[2]), 500)
    fp32 = _tflops(torch.float32, 768)
    return {
        "fp64": _tflops(torch.float64, 512),
        "fp32": fp32,
        "fp16": _tflops(torch.bfloat16, 512),
        "memory": _bandwidth(192, kernel),
        "cache": _bandwidth(1.5, kernel),
        "link": 4 * 2**23 / copy_us / 1e3,
        "kernel": kernel,
        "convolution": _convolution(fp32),
        "recurrent": _recurrent(fp32),
        "step": _lstm_step(kernel),
        "round_trip": statistics.median(trips),
    }


def sheet_text(name: str, figures: dict[str, float]) -> str:
    """Return a sheet of what was measured."""
    f = {key: float(f"{value:.4g}") for key, value in figures.items()}
    gib = npu.get_device_properties(0).total_memory / 2**30
    return f"""# Measured: not the peak of a data sheet, but what programs reach.
name = "{name}"
source = "npu-dispatch calibrate"
date = "{time.strftime("%Y-%m-%d")}"

[memory]
gib = {gib:.2f}
gb_per_s = {f["memory"]}
cache_mib = 4
cache_gb_per_s = {f["cache"]}

[tflops]
fp64 = {f["fp64"]}
fp32 = {f["fp32"]}
fp16 = {f["fp16"]}   # of bfloat16
int8 = {f["fp32"]}   # not measured: that of fp32

[link]
gb_per_s = {f["link"]}
copy_engines = 1

# Launch and completion are the engine's own, and real when emulated: a launch and
# its wait took {f["round_trip"]} us.
[latency_us]
launch = 0
kernel = {f["kernel"]}
complete = 0
copy = {f["kernel"]}
step = {f["step"]}   # of an LSTM layer

[efficiency]
convolution = {f["convolution"]}   # of fp32's rate above
recurrent = {f["recurrent"]}

[queues]
concurrency = 1
"""
