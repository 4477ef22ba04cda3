"""What `calibrate` runs: operators as programs train with them, and their times."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

from npu_dispatch import npu

__all__ = ["common_kernels", "device_us", "latencies_us", "training_rate"]

# Each figure is the least of so many, and of as many more as take this time:
# others on this machine can only make it longer.
_REPEATS, _LEAST_S = 5, 0.3
# Which the host needs to launch what is measured.
_AHEAD_NS = 1_500_000
_BLOCK_US, _MOST_CALLS = 2_000, 100
# Between two launches of a program, and of one of its kernels.
_USUAL_US = 20
_TRIPS = 300

Call = Callable[[], object]


def device_us(call: Call) -> float:
    """Return how long a call takes the device, behind a queue that is not empty."""
    call()
    found: list[float] = []
    times, end = 1, time.perf_counter() + _LEAST_S
    while len(found) < _REPEATS or time.perf_counter() < end:
        start, done = (npu.Event(enable_timing=True) for _ in range(2))
        npu._sleep(_AHEAD_NS)
        start.record()
        for _ in range(times):
            call()
        done.record()
        done.synchronize()
        found.append(start.elapsed_time(done) * 1e3 / times)
        times = min(max(int(_BLOCK_US / max(found[-1], 0.1)), 1), _MOST_CALLS)
    return min(found[1:])


def common_kernels(n: int) -> Iterator[tuple[str, Call, int]]:
    """Return kernels that a training has beside its products: how each moves its
    bytes (as [efficiency] of a spec has it), a call with tensors of `n` elements, and
    how many of these tensors it reads and writes.

    They are those between a network's layers, and of its optimizer.
    """
    aten = torch.ops.aten
    x, grad, out = (torch.rand(n, device="npu") for _ in range(3))
    rows, grads = x.view(-1, 64), grad.view(-1, 64)
    weight = torch.ones(64, device="npu")
    layer = rows, [64], weight, weight, 1e-5
    _, *kept = torch.native_layer_norm(*layer)
    to_layer = grads, rows, [64], *kept, weight, weight, [True] * 3
    parts = torch.softmax(rows, -1)
    to_softmax = grads, parts, -1, torch.float32
    image, images = x.view(8, -1, 4, 4), grad.view(8, -1, 4, 4)
    scale = torch.ones(image.shape[1], device="npu")
    batch = image, None, None, scale, scale, True
    to_batch = images, image, scale, None, None, scale, scale, True, 1e-5, [True] * 3
    ids = torch.arange(len(rows), device="npu").flip(0)
    moments, step = torch.zeros(2, n, device="npu"), torch.ones((), device="npu")
    adam: Any = [out], [grad], [moments[0]], [moments[1]], [], [step]
    rates = dict.fromkeys(("lr", "beta1", "beta2", "weight_decay", "eps"), 1e-3)
    flags = {"amsgrad": False, "maximize": False}
    yield "stream", lambda: torch.add(x, grad, out=out), 3
    yield "stream", lambda: x.relu(), 2
    yield "stream", lambda: aten.threshold_backward(grad, x, 0), 3
    yield "stream", lambda: out.copy_(x), 2
    yield "function", lambda: F.gelu(x), 2
    yield "function", lambda: aten.gelu_backward(grad, x), 3
    yield "reduction", lambda: torch.native_layer_norm(*layer), 2
    yield "reduction", lambda: aten.native_layer_norm_backward(*to_layer), 3
    yield "reduction", lambda: torch.softmax(rows, -1), 2
    yield "reduction", lambda: aten._softmax_backward_data(*to_softmax), 3
    yield "reduction", lambda: rows.sum(0), 1
    yield "reduction", lambda: F.batch_norm(*batch), 2
    yield "reduction", lambda: aten.native_batch_norm_backward(*to_batch), 3
    yield "gather", lambda: torch.cat((rows, grads), 1), 4
    yield "gather", lambda: F.embedding(ids, rows), 2
    yield "stream", lambda: aten._fused_adamw_(*adam, **rates, **flags), 7


def training_rate(
    forward: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, flops: float
) -> float:
    """Return TFLOP/s of a function, forward and backward."""
    x.requires_grad_(True)
    grad = torch.ones_like(forward(x))
    call = lambda: torch.autograd.backward(forward(x), grad)  # noqa: E731
    return flops / device_us(call) / 1e6


def _trip_us(idle_us: float, kernel_us: int) -> float:
    """Return what a launch and its wait take beside the kernel and the launch itself.

    The device has had nothing to do for `idle_us` before.
    """
    found = []
    for _ in range(_TRIPS):
        npu.synchronize()
        begun = time.perf_counter()
        while time.perf_counter() < begun + idle_us / 1e6:
            pass
        begun, worked = time.perf_counter(), time.thread_time()
        npu._sleep(max(kernel_us * 1000, 1))
        worked = time.thread_time() - worked
        npu.synchronize()
        took = time.perf_counter() - begun - worked
        found.append(took * 1e6 - kernel_us)
    return max(statistics.median(found), 0.0)


def latencies_us() -> tuple[float, float]:
    """Return what lies between a launch and its start, and between an end and the
    host.

    Both are longer where one has waited for the other: a launch after a pause, and
    an end after a kernel that took a while. The shortest trip is taken to be half one
    and half the other.
    """
    half = _trip_us(0, 0) / 2
    launch = _trip_us(_USUAL_US, 0) - half
    complete = _trip_us(0, _USUAL_US) - half
    return max(launch, 0.0), max(complete, 0.0)
