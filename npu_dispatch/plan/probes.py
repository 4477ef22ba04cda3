"""What `calibrate` runs: each operator that programs train with, in a grid of sizes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any

import torch

from npu_dispatch import npu

__all__ = ["GRIDS", "device_us", "latencies_us"]

# Each figure is the least of so many, and of as many more as take this time:
# others on this machine can only make it longer.
_REPEATS, _LEAST_S = 4, 0.06
# Which the host needs to launch what is measured.
_AHEAD_NS = 1_000_000
_BLOCK_US, _MOST_CALLS = 2_000, 100
# Between two launches of a program, and of one of its kernels.
_USUAL_US = 20
_TRIPS = 300

aten = torch.ops.aten
# Kernels of one tensor, of two of one size, and of one and a number.
_UNARY = ["relu", "relu_", "hardtanh", "gelu", "silu", "tanh", "sigmoid", "exp"]
_UNARY += ["log", "zero_"]
_BINARY = ["add", "add_", "sub", "sub_", "mul", "mul_", "mse_loss"]
_BINARY += ["gelu_backward", "tanh_backward", "sigmoid_backward"]
_WITH_NUMBER = ("mul", "div", "pow", "fill_")

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


def _new(*sizes: int) -> torch.Tensor:
    return torch.rand(sizes, device="npu")


def _products(rows: int, widths: tuple[int, int]) -> Iterator[Call]:
    """Those of a linear layer, forward and backward."""
    width, out = widths
    x, grad, weight = _new(rows, width), _new(rows, out), _new(out, width)
    yield partial(torch.addmm, _new(out), x, weight.t())
    yield partial(torch.mm, grad, weight)
    yield partial(torch.mm, grad.t(), x)


def _batches(count: int, rows: int, width: int) -> Iterator[Call]:
    a, b = _new(count, rows, width), _new(count, width, rows)
    yield partial(torch.bmm, a, b)
    yield partial(torch.bmm, b, a)


def _convolutions(
    inner: int, outer: int, groups: int, filters: int, side: int
) -> Iterator[Call]:
    x = _new(8 if side < 64 else 2, inner * groups, side, side)
    weight = _new(outer * groups, inner, filters, filters)
    how: Any = [1, 1], [filters // 2] * 2, [1, 1], False, [0, 0], groups
    grad = torch.convolution(x, weight, None, *how)
    wanted = [inner != 3, True, False]
    yield partial(torch.convolution, x, weight, None, *how)
    yield partial(aten.convolution_backward, grad, x, weight, None, *how, wanted)


def _attention(heads: int, tokens: int, width: int) -> Iterator[Call]:
    q, grad = _new(1, heads, tokens, width), _new(1, heads, tokens, width)
    forward = aten._scaled_dot_product_flash_attention_for_cpu
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward
    yield partial(forward, q, q, q)
    yield partial(backward, grad, q, q, q, *forward(q, q, q), 0.0, False)


def _recurrence(steps: int, batch: int, width: int, hidden: int) -> Iterator[Call]:
    x, state = _new(steps, batch, width), _new(batch, hidden)
    weights = _new(4 * hidden, width), _new(4 * hidden, hidden)
    biases = _new(4 * hidden), _new(4 * hidden)
    given = x, *weights, *biases, state, state
    how: Any = False, [], 2, hidden, 1, True, False, False, True
    *out, kept = aten.mkldnn_rnn_layer(*given, *how)
    tail: Any = False, 2, hidden, 1, True, True, False, [], False, kept
    yield partial(aten.mkldnn_rnn_layer, *given, *how)
    yield partial(aten.mkldnn_rnn_layer_backward, *given, *out, *out, *tail)


def _optimizers(count: int, n: int) -> Iterator[Call]:
    lists = [[_new(n) for _ in range(count)] for _ in range(4)]
    x, grads, *_ = lists
    steps = [torch.ones((), device="npu") for _ in range(count)]
    rates = dict.fromkeys(("lr", "beta1", "beta2", "weight_decay", "eps"), 1e-3)
    how: Any = {**rates, "amsgrad": False, "maximize": False}
    for update in (aten._fused_adamw_, aten._fused_adam_):
        yield partial(update, *lists, [], steps, **how)
    yield partial(torch._foreach_add_, x, grads, alpha=-1e-3)
    yield partial(torch._foreach_mul_, x, 0.999)
    yield partial(torch._foreach_norm, grads)


def _elements(n: int) -> Iterator[Call]:
    x, grad, out = (_new(n) for _ in range(3))
    rows, truth = x.view(-1, 64), x > 0.5
    for name in _UNARY:
        yield partial(getattr(aten, name), x.clone())
    for name in _BINARY:
        yield partial(getattr(aten, name), x.clone(), grad)
    for name in _WITH_NUMBER:
        yield partial(getattr(aten, name), x.clone(), 2.0)
    yield partial(torch.add, rows, rows[0])
    yield partial(aten.threshold_backward, grad, x, 0)
    yield partial(aten.hardtanh_backward, grad, x, -1, 1)
    yield partial(aten.mse_loss_backward, out[0], x, grad, 1)
    yield partial(torch.where, truth, x, grad)
    yield partial(out.masked_fill_, truth, 0.5)
    yield partial(out.view(8, -1).copy_, grad.view(-1, 8).t())


def _rows(n: int) -> Iterator[Call]:
    """Kernels of rows of 64 elements, each of which has its own sums or place."""
    rows, grads, weight = _new(n // 64, 64), _new(n // 64, 64), _new(64)
    layer = rows, [64], weight, weight, 1e-5
    _, *kept = torch.native_layer_norm(*layer)
    to_layer = grads, rows, [64], *kept, weight, weight, [True] * 3
    ids = torch.arange(len(rows), device="npu").flip(0)
    labels = ids % 64
    parts, logs = torch.softmax(rows, -1), torch.log_softmax(rows, -1)
    losses = None, 1, -100
    loss, total = aten.nll_loss_forward(logs, labels, *losses)
    few = ids[::8].contiguous()
    bags = torch.arange(0, len(few), 8, device="npu")
    out, *of_bags = aten._embedding_bag(rows, few, bags)
    to_bags = out, few, bags, *of_bags, len(rows), False, 0, False, None
    yield partial(torch.native_layer_norm, *layer)
    yield partial(aten.native_layer_norm_backward, *to_layer)
    yield partial(torch.softmax, rows, -1)
    yield partial(aten._softmax_backward_data, grads, parts, -1, torch.float32)
    yield partial(torch.log_softmax, rows, -1)
    yield partial(aten._log_softmax_backward_data, grads, logs, -1, torch.float32)
    yield partial(aten.nll_loss_forward, logs, labels, *losses)
    yield partial(aten.nll_loss_backward, loss, logs, labels, *losses, total)
    yield partial(torch.sum, rows, 0)
    yield partial(torch.mean, rows, -1)
    yield partial(torch.argmax, rows, -1)
    yield partial(torch.cat, (rows, grads), 1)
    yield partial(aten.embedding, rows, ids)
    yield partial(aten.embedding_dense_backward, grads, ids, len(rows), -1, False)
    yield partial(aten._embedding_bag, rows, few, bags)
    yield partial(aten._embedding_bag_backward, *to_bags)


def _images(n: int) -> Iterator[Call]:
    """Kernels of images of 16 channels, 8 of them where there are enough elements."""
    count = min(8, max(n // 256, 1))
    side = max(int((n / count / 16) ** 0.5), 2)
    image, grads, scale = *_new(2, count, 16, side, side), _new(16)
    batch = image, scale, scale, scale, scale, True
    to_batch = grads, image, scale, scale, scale, scale, scale, True, 1e-5, [True] * 3
    sizes = count, 16, side * side, 4
    group = image, scale, scale, *sizes, 1e-5
    _, *kept = aten.native_group_norm(*group)
    to_group = grads, image, *kept, scale, *sizes, [True] * 3
    squares: Any = [2, 2], [2, 2]
    pooled, places = aten.max_pool2d_with_indices(image, *squares)
    to_pool = pooled, image, *squares, [0, 0], [1, 1], False, places
    yield partial(aten.native_batch_norm, *batch, 0.1, 1e-5)
    yield partial(aten.native_batch_norm_backward, *to_batch)
    yield partial(aten.native_group_norm, *group)
    yield partial(aten.native_group_norm_backward, *to_group)
    yield partial(aten.max_pool2d_with_indices, image, *squares)
    yield partial(aten.max_pool2d_with_indices_backward, *to_pool)
    yield partial(torch.mean, image, (2, 3))


_WIDTHS = [(8, 64), (64, 2), (64, 16), (64, 64), (64, 256), (256, 64)]
_WIDTHS += [(512, 2048), (2048, 512)]
# Channels of a group, in and out; groups; the filters' and the images' sides.
_CHANNELS = (3, 16), (3, 64), (16, 16), (32, 64), (64, 64), (128, 32), (256, 256)
_FILTERS = [(*io, 1, side, at) for io, side, at in product(_CHANNELS, (1, 3), (8, 32))]
_FILTERS += [(512, 512, 1, 3, 4), (256, 512, 1, 3, 2), (32, 128, 1, 1, 32)]
_FILTERS += [(3, 64, 1, 7, 32), (3, 64, 1, 7, 128), (16, 16, 1, 3, 64)]
_FILTERS += [(1, 1, n, 3, at) for n, at in ((64, 8), (256, 16), (32, 32), (256, 32))]
# Of what fits into each cache, and of what does not.
_ELEMENTS = [(n,) for n in (64, 1 << 10, 1 << 13, 1 << 16, 1 << 19, 1 << 22)]
# Calls that launch one kernel each, and the sizes that they are made for.
GRIDS: dict[Callable[..., Iterable[Call]], Sequence[tuple[Any, ...]]] = {
    _products: [*product((1, 8, 32, 128, 1024), _WIDTHS)],
    _batches: [(16, 32, 16), (16, 16, 32), (32, 128, 64), (32, 64, 128), (4, 256, 256)],
    _convolutions: _FILTERS,
    _attention: [(16, 32, 16), (16, 128, 32), (32, 256, 64)],
    _recurrence: [(4, 4, 32, 32), (16, 8, 32, 64), (16, 8, 64, 64), (16, 16, 192, 192)],
    _optimizers: [(4, 64), (4, 1 << 14), (40, 64), (40, 1 << 13), (16, 1 << 20)],
    _elements: _ELEMENTS,
    _rows: _ELEMENTS,
    _images: _ELEMENTS,
}


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
