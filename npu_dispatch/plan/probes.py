"""What `calibrate` runs: each operator that programs train with, in a grid of sizes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F

from npu_dispatch import npu

__all__ = ["Call", "device_us", "latencies_us", "probes"]

# Each figure is the least of so many, and of as many more as take this time:
# others on this machine can only make it longer.
_REPEATS, _LEAST_S = 4, 0.06
# Which the host needs to launch what is measured.
_AHEAD_NS = 1_000_000
_BLOCK_US, _MOST_CALLS = 2_000, 100
# Between two launches of a program, and of one of its kernels.
_USUAL_US = 20
_TRIPS = 300

# Elements of what fits into each cache, and of what does not.
_ELEMENTS = 64, 1 << 10, 1 << 13, 1 << 16, 1 << 19, 1 << 22
_ROWS = 1, 8, 32, 128, 1024
_WIDTHS = [(8, 64), (64, 2), (64, 16), (64, 64), (64, 256), (256, 64)]
_WIDTHS += [(512, 2048), (2048, 512)]
_BATCHES = (16, 32, 16), (16, 16, 32), (32, 128, 64), (32, 64, 128), (4, 256, 256)
# Channels in and out, of each group; groups; the filters' and the images' sides.
_CHANNELS = (3, 16), (3, 64), (16, 16), (32, 64), (64, 64), (128, 32), (256, 256)
_IMAGES = [
    *((i, o, 1, side, at) for (i, o), side, at in product(_CHANNELS, (1, 3), (8, 32))),
    *((512, 512, 1, 3, 4), (256, 512, 1, 3, 2), (32, 128, 1, 1, 32)),
    *((3, 64, 1, 7, 32), (3, 64, 1, 7, 128), (16, 16, 1, 3, 64)),
    *((1, 1, 64, 3, 8), (1, 1, 256, 3, 16), (1, 1, 32, 3, 32), (1, 1, 256, 3, 32)),
]
_HEADS = (16, 32, 16), (16, 128, 32), (32, 256, 64)  # tokens, and width of each
_LAYERS = (4, 4, 32, 32), (16, 8, 32, 64), (16, 8, 64, 64), (16, 16, 192, 192)
_PARAMETERS = (4, 64), (4, 1 << 14), (40, 64), (40, 1 << 13), (16, 1 << 20)

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


def probes() -> Iterator[Call]:
    """Yield calls that launch one kernel each."""
    for rows, widths in product(_ROWS, _WIDTHS):
        yield from _products(rows, *widths)
    for sizes in _BATCHES:
        yield from _batches(*sizes)
    for image in _IMAGES:
        yield from _convolutions(*image)
    for heads in _HEADS:
        yield from _attention(*heads)
    for layer in _LAYERS:
        yield from _recurrence(*layer)
    for parameters in _PARAMETERS:
        yield from _optimizers(*parameters)
    for n in _ELEMENTS:
        yield from _elements(n)
        yield from _sums(n)
        yield from _images(n)


def _new(*sizes: int) -> torch.Tensor:
    return torch.rand(sizes, device="npu")


def _products(rows: int, width: int, out: int) -> Iterator[Call]:
    """Those of a linear layer, forward and backward."""
    x, grad = _new(rows, width), _new(rows, out)
    weight, bias = _new(out, width), _new(out)
    yield lambda: torch.addmm(bias, x, weight.t())
    yield lambda: grad @ weight
    yield lambda: grad.t() @ x


def _batches(count: int, rows: int, width: int) -> Iterator[Call]:
    a, b = _new(count, rows, width), _new(count, width, rows)
    yield lambda: torch.bmm(a, b)
    yield lambda: torch.bmm(b, a)


def _convolutions(
    inner: int, outer: int, groups: int, filters: int, side: int
) -> Iterator[Call]:
    x = _new(8 if side < 64 else 2, inner * groups, side, side)
    weight = _new(outer * groups, inner, filters, filters)
    how: Any = [1, 1], [filters // 2] * 2, [1, 1], False, [0, 0], groups
    grad = torch.convolution(x, weight, None, *how)
    back = torch.ops.aten.convolution_backward
    wanted = [inner != 3, True, False]
    yield lambda: torch.convolution(x, weight, None, *how)
    yield lambda: back(grad, x, weight, None, *how, wanted)


def _attention(heads: int, tokens: int, width: int) -> Iterator[Call]:
    q, grad = _new(1, heads, tokens, width), _new(1, heads, tokens, width)
    aten = torch.ops.aten
    forward = aten._scaled_dot_product_flash_attention_for_cpu
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward
    out, kept = forward(q, q, q)
    yield lambda: forward(q, q, q)
    yield lambda: backward(grad, q, q, q, out, kept, 0.0, False)


def _recurrence(steps: int, batch: int, width: int, hidden: int) -> Iterator[Call]:
    x, state = _new(steps, batch, width), _new(batch, hidden)
    weights = _new(4 * hidden, width), _new(4 * hidden, hidden)
    biases = _new(4 * hidden), _new(4 * hidden)
    how: Any = False, [], 2, hidden, 1, True, False, False, True
    layer = torch.ops.aten.mkldnn_rnn_layer
    back = torch.ops.aten.mkldnn_rnn_layer_backward
    given = x, *weights, *biases, state, state
    out, h, c, kept = layer(*given, *how)
    tail: Any = False, 2, hidden, 1, True, True, False, [], False, kept
    yield lambda: layer(*given, *how)
    yield lambda: back(*given, out, h, c, out, h, c, *tail)


def _optimizers(count: int, n: int) -> Iterator[Call]:
    aten = torch.ops.aten
    lists = [[_new(n) for _ in range(count)] for _ in range(4)]
    x, grads, *_ = lists
    steps = [torch.ones((), device="npu") for _ in range(count)]
    rates = dict.fromkeys(("lr", "beta1", "beta2", "weight_decay", "eps"), 1e-3)
    how: Any = {**rates, "amsgrad": False, "maximize": False}
    yield lambda: aten._fused_adamw_(*lists, [], steps, **how)
    yield lambda: aten._fused_adam_(*lists, [], steps, **how)
    yield lambda: torch._foreach_add_(x, grads, alpha=-1e-3)
    yield lambda: torch._foreach_mul_(x, 0.999)
    yield lambda: torch._foreach_norm(grads)


def _elements(n: int) -> Iterator[Call]:
    aten = torch.ops.aten
    x, grad, out = (_new(n) for _ in range(3))
    rows = x.view(-1, 64)
    truth = x > 0.5
    yield lambda: torch.add(x, grad)
    yield lambda: torch.add(rows, rows[0])
    yield lambda: x.add_(grad)
    yield lambda: x * grad
    yield lambda: x * 2.0
    yield lambda: out.mul_(grad)
    yield lambda: x - grad
    yield lambda: out.sub_(grad)
    yield lambda: x / 3.0
    yield lambda: x.pow(2)
    yield lambda: x.exp()
    yield lambda: x.log()
    yield lambda: x.relu()
    yield lambda: out.relu_()
    yield lambda: aten.threshold_backward(grad, x, 0)
    yield lambda: F.hardtanh(x)
    yield lambda: aten.hardtanh_backward(grad, x, -1, 1)
    yield lambda: F.gelu(x)
    yield lambda: aten.gelu_backward(grad, x)
    yield lambda: F.silu(x)
    yield lambda: x.tanh()
    yield lambda: aten.tanh_backward(grad, x)
    yield lambda: x.sigmoid()
    yield lambda: aten.sigmoid_backward(grad, x)
    yield lambda: aten.mse_loss_backward(out[0], x, grad, 1)
    yield lambda: F.mse_loss(x, grad)
    yield lambda: torch.where(truth, x, grad)
    yield lambda: out.masked_fill_(truth, 0.5)
    yield lambda: out.fill_(0.5)
    yield lambda: out.zero_()
    yield lambda: out.view(8, -1).copy_(grad.view(-1, 8).t())


def _sums(n: int) -> Iterator[Call]:
    """Kernels of rows of 64 elements, each of which has its own sums or place."""
    aten = torch.ops.aten
    rows, grads, weight = _new(n // 64, 64), _new(n // 64, 64), _new(64)
    layer = rows, [64], weight, weight, 1e-5
    _, *kept = torch.native_layer_norm(*layer)
    ids = torch.arange(len(rows), device="npu").flip(0)
    labels = ids % 64
    parts, logs = torch.softmax(rows, -1), torch.log_softmax(rows, -1)
    loss, total = aten.nll_loss_forward(logs, labels, None, 1, -100)
    yield lambda: torch.native_layer_norm(*layer)
    yield lambda: aten.native_layer_norm_backward(
        grads, rows, [64], *kept, weight, weight, [True] * 3
    )
    yield lambda: torch.softmax(rows, -1)
    yield lambda: aten._softmax_backward_data(grads, parts, -1, torch.float32)
    yield lambda: torch.log_softmax(rows, -1)
    yield lambda: aten._log_softmax_backward_data(grads, logs, -1, torch.float32)
    yield lambda: aten.nll_loss_forward(logs, labels, None, 1, -100)
    yield lambda: aten.nll_loss_backward(loss, logs, labels, None, 1, -100, total)
    yield lambda: rows.sum(0)
    yield lambda: rows.mean(-1)
    yield lambda: rows.argmax(-1)
    yield lambda: torch.cat((rows, grads), 1)
    yield lambda: F.embedding(ids, rows)
    yield lambda: aten.embedding_dense_backward(grads, ids, len(rows), -1, False)
    few = ids[::8].contiguous()
    bags = torch.arange(0, len(few), 8, device="npu")
    out, *kept = aten._embedding_bag(rows, few, bags)
    yield lambda: aten._embedding_bag(rows, few, bags)
    yield lambda: aten._embedding_bag_backward(
        out, few, bags, *kept, len(rows), False, 0, False, None
    )


def _images(n: int) -> Iterator[Call]:
    """Kernels of images of 16 channels, 8 of them where there are enough elements."""
    aten = torch.ops.aten
    count = min(8, max(n // 256, 1))
    side = max(int((n / count / 16) ** 0.5), 2)
    image, grads = _new(count, 16, side, side), _new(count, 16, side, side)
    scale = _new(16)
    batch = image, scale, scale, scale, scale, True
    group = count, 16, side * side, 4
    _, mean, by = aten.native_group_norm(image, scale, scale, *group, 1e-5)
    pooled, places = aten.max_pool2d_with_indices(image, [2, 2], [2, 2])
    yield lambda: aten.native_batch_norm(*batch, 0.1, 1e-5)
    yield lambda: aten.native_batch_norm_backward(
        grads, image, scale, scale, scale, scale, scale, True, 1e-5, [True] * 3
    )
    yield lambda: aten.native_group_norm(image, scale, scale, *group, 1e-5)
    yield lambda: aten.native_group_norm_backward(
        grads, image, mean, by, scale, *group, [True] * 3
    )
    yield lambda: aten.max_pool2d_with_indices(image, [2, 2], [2, 2])
    yield lambda: aten.max_pool2d_with_indices_backward(
        pooled, image, [2, 2], [2, 2], [0, 0], [1, 1], False, places
    )
    yield lambda: image.mean((2, 3))


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
