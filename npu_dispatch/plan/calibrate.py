"""Measure the device that this process has, and write a spec of it.

With a spec of the driver `host`, a plan can be compared with a real run.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import torch

from npu_dispatch import _C, npu
from npu_dispatch.plan.kernel_times import Kernel
from npu_dispatch.plan.probes import GRIDS, device_us, latencies_us
from npu_dispatch.plan.study import TYPES

__all__ = ["kernels", "measure", "spec_text"]

# Elements: of what fits into no cache, and of next to nothing.
_LARGE, _SMALL = 1 << 22, 256
_FLOAT = 4  # bytes
_SIDE = 512  # of a matrix


def kernels() -> Iterator[Kernel]:
    """Yield each operator of the grid in each of its sizes, with the time it takes."""
    grids = ((calls, sizes) for calls, grid in GRIDS.items() for sizes in grid)
    for call in (call for calls, sizes in grids for call in calls(*sizes)):
        _C.plan_start("", 1.0)
        call()
        (work,) = _C.plan_stop().works
        shapes = tuple(tuple(shape) for shape in work["shapes"] if shape)
        # As an operator of lists is told of: without its result.
        shapes = shapes[:-1] if work["name"] == "aten::cat" else shapes
        dtype = TYPES[work["itemsize"]][0]
        yield Kernel(work["name"], shapes, dtype, device_us(call) * 1e3)


def _sum_us(n: int) -> float:
    x = torch.ones(n, device="npu")
    return device_us(lambda: x + x)


def _product_rate(dtype: torch.dtype) -> float:
    """Return TFLOP/s of a product of square matrices."""
    a, b, c = (torch.ones(_SIDE, _SIDE, dtype=dtype, device="npu") for _ in range(3))
    return 2 * _SIDE**3 / device_us(lambda: torch.mm(a, b, out=c)) / 1e6


def measure() -> dict[str, dict[str, float]]:
    """Return the tables of a spec of this process's device.

    They are for what no kernel of the grid is like.
    """
    host = torch.ones(_LARGE).pin_memory()
    there = torch.ones(_LARGE, device="npu")
    copy_us = device_us(lambda: there.copy_(host, non_blocking=True))
    launch, complete = latencies_us()
    kernel, large = _sum_us(_SMALL), _sum_us(_LARGE)
    fp32 = _product_rate(torch.float32)
    return {
        "memory": {
            "gib": npu.get_device_properties(0).total_memory / 2**30,
            "gb_per_s": 2 * _FLOAT * _LARGE / large / 1e3,
        },
        "tflops": {
            "fp64": _product_rate(torch.float64),
            "fp32": fp32,
            "fp16": _product_rate(torch.bfloat16),
            "int8": fp32,
        },
        "link": {"gb_per_s": _FLOAT * _LARGE / copy_us / 1e3, "copy_engines": 1},
        "latency_us": {
            "launch": launch,
            "kernel": kernel,
            "complete": complete,
            "copy": kernel,
        },
        "queues": {"concurrency": 1},
    }


def spec_text(
    name: str, tables: Mapping[str, Mapping[str, float]], timed: Sequence[Kernel]
) -> str:
    """Return a spec of what was measured."""
    lines = [
        "# Measured: not the peak of a data sheet, but what programs reach. fp16 is",
        "# that of bfloat16; int8 is not measured, and that of fp32.",
        f'name = "{name}"',
        'source = "npu-dispatch calibrate"',
        f'date = "{time.strftime("%Y-%m-%d")}"',
        "# Operators, their type and shapes, and the microseconds of a call.",
        "kernels = [",
        *(f'  "{kernel.text()}",' for kernel in timed),
        "]",
    ]
    for title, figures in tables.items():
        lines += ["", f"[{title}]"]
        lines += [f"{key} = {value:.4g}" for key, value in figures.items()]
    return "\n".join([*lines, ""])
