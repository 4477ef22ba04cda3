"""Calls that cpu refuses because of their arguments are refused at the call.

That is so whatever their size, and whatever was called before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

Make = Callable[..., Tensor]
Calls = Callable[[Make, int], tuple[Callable[[], Any], Callable[[], Any]]]


def zeros(device: str) -> Make:
    return lambda *shape, dtype=torch.float32: torch.zeros(
        shape, dtype=dtype, device=device
    )


def linear(make: Make, n: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    x, weight = make(n, n), make(n, n)
    return (
        lambda: F.linear(x, weight, make(n)),
        lambda: F.linear(x, weight, make(n + 1)),
    )


def convolution(make: Make, n: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    x, weight = make(1, 4, n, n), make(6, 4, 3, 3)
    return (
        lambda: F.conv2d(x, weight, make(6)),
        lambda: F.conv2d(x, weight, make(7)),
    )


def grouped(make: Make, n: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    x = make(1, 4, n, n)
    return (
        lambda: F.conv2d(x, make(6, 2, 3, 3), groups=2),
        lambda: F.conv2d(x, make(7, 2, 3, 3), groups=2),
    )


def transposed(make: Make, n: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    x = make(1, 4, n, n)
    return (
        lambda: F.conv_transpose2d(x, make(4, 6, 3, 3)),
        lambda: F.conv_transpose2d(x, make(5, 6, 3, 3)),
    )


def put_rows(make: Make, n: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    x, rows = make(n, n), make(3, dtype=torch.int64)
    return (
        lambda: x.index_put((rows,), make(3, n)),
        lambda: x.index_put((rows,), make(3, n - 1)),
    )


def put_masked(make: Make, n: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    x = make(n, n)
    return (
        lambda: x.index_put((make(n, dtype=torch.bool),), make(1, n)),
        lambda: x.index_put((make(n + 1, dtype=torch.bool),), make(1, n)),
    )


def put_columns(make: Make, n: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    x, places = make(2, n, n), (slice(None), make(7, dtype=torch.int64))
    return (
        lambda: x.__setitem__(places, make(2, 7, n)),
        lambda: x.__setitem__(places, make(2, 8, n)),
    )


def reduce_rows(make: Make, n: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    x, source = make(n, n), make(3, n)
    return (
        lambda: x.index_reduce(0, make(3, dtype=torch.int64), source, "amax"),
        lambda: x.index_reduce(0, make(4, dtype=torch.int64), source, "amax"),
    )


def put(make: Make, n: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    x, places = make(n, n), make(4, dtype=torch.int64)
    return lambda: x.put(places, make(4)), lambda: x.put(places, make(5))


def draws(make: Make, n: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    weights = make(4, n) + 1
    return (
        lambda: weights.multinomial(n),
        lambda: weights.multinomial(n + 1),
    )


def reflectors(make: Make, n: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    x, other = make(n, n), make(n, n)
    return (
        lambda: torch.ormqr(x, make(n), other),
        lambda: torch.ormqr(x, make(n - 1), other),
    )


def scattered(make: Make, n: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    x, source = make(n, n), make(n, n)
    return (
        lambda: x.masked_scatter_(make(n, n, dtype=torch.bool), source),
        lambda: x.masked_scatter_(make(n - 1, n, dtype=torch.bool), source),
    )


def normal(make: Make, n: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    mean = make(n, n)
    return (
        lambda: torch.normal(mean, 1.0, out=make(n, n)),
        lambda: torch.normal(mean, 1.0, out=make(n, n - 1)),
    )


def attention(make: Make, n: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    q = make(1, 2, n, 8)
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return lambda: flash(q, q, q), lambda: flash(q, q, q, 0.5)


CALLS = (
    linear, convolution, grouped, transposed, put_rows, put_masked, put_columns,
    reduce_rows, put, draws, reflectors, attention, scattered, normal,
)  # fmt: skip


def error_of(call: Callable[[], Any]) -> Exception:
    with pytest.raises((RuntimeError, IndexError)) as raised:
        call()
    return raised.value


@pytest.mark.parametrize("n", [12, 520])
@pytest.mark.parametrize("calls", CALLS, ids=lambda c: c.__name__)
def test_a_wrong_call_is_refused_as_on_cpu(calls: Calls, n: int):
    if calls is reflectors:
        n = min(n, 260)  # A product of n matrices.
    right, wrong = calls(zeros("npu"), n)
    on_cpu = error_of(calls(zeros("cpu"), n)[1])

    for _ in range(2):
        on_npu = error_of(wrong)
        assert type(on_npu) is type(on_cpu)
        assert str(on_npu).splitlines()[0] == str(on_cpu).splitlines()[0]
        right()
        torch.npu.synchronize()


# Attention may draw numbers that a program would miss, so nobody tries it.
@pytest.mark.parametrize("calls", CALLS[:11] + CALLS[12:], ids=lambda c: c.__name__)
def test_a_capture_refuses_a_wrong_call_in_cpus_words(calls: Calls):
    wrong = calls(zeros("npu"), 12)[1]
    on_cpu = error_of(calls(zeros("cpu"), 12)[1])

    with torch.npu.graph(torch.npu.NPUGraph()):
        on_npu = error_of(wrong)

    assert type(on_npu) is type(on_cpu)
    assert str(on_npu).splitlines()[0] == str(on_cpu).splitlines()[0]


def test_a_matrix_that_fails_late_is_a_linalg_error():
    torch.linalg.eigh(torch.eye(6).npu())
    with pytest.raises(torch.linalg.LinAlgError, match="eigh"):
        try:
            torch.linalg.eigh(torch.full((6, 6), float("nan")).npu())
            torch.npu.synchronize()
        finally:
            torch.npu.clear_error()


FIRST_LARGE_CALLS = """
import torch, torch.nn.functional as F

made = lambda *shape: torch.ones(shape, device="npu")
ints = lambda *shape: torch.zeros(shape, dtype=torch.int64, device="npu")
big, images, rows = made(600, 600), made(8, 16, 64, 64), made(32, 128, 64)
torch.npu.synchronize()
torch.npu.set_sync_debug_mode("error")
F.conv2d(images, made(32, 16, 3, 3), made(32))
F.conv_transpose2d(images, made(16, 8, 3, 3))
F.batch_norm(images, made(16), made(16), training=True)
F.batch_norm(images[:1], made(16), made(16), training=True)
F.group_norm(images, 4)
F.layer_norm(rows, [64])
F.layer_norm(made(64, 2048), [2048], made(2048), made(2048))
F.embedding(ints(70000), made(1000, 64))
F.dropout(big)
F.pad(big, (1, 1)), F.pad(images, (1, 1, 1, 1), mode="reflect")
F.interpolate(images, size=(100, 100), mode="bilinear")
F.max_pool2d(images, 2), F.avg_pool2d(images, 2), F.adaptive_avg_pool2d(images, 1)
F.cross_entropy(big, ints(600)), F.nll_loss(images, ints(8, 64, 64))
F.unfold(images, 3), F.pixel_shuffle(images, 2)
F.grid_sample(images, made(8, 64, 64, 2), align_corners=False)
big.std(), big.std(1), big.max(), big.max(1), big.flip(0), big.roll(10, 0)
big.cumsum(0), big.tril()
big.sort(1), big.topk(50, 1), big.kthvalue(100, 1), big.median(1), big.cummax(1)
big.logcumsumexp(1), big.histc(100), torch.fft.irfft(big), big.renorm(2, 0, 1.0)
big[ints(500)], big.index_put((ints(500),), made(500, 600))
big.scatter(1, ints(600, 600), big), big.gather(1, ints(600, 600))
F.scaled_dot_product_attention(*[made(4, 8, 128, 32)] * 3)
torch.npu.set_sync_debug_mode("default")
torch.npu.synchronize()
print("none waited")
"""


# Of many different sizes, each only a little larger than another one.
CROWDED_SIZES = """
import resource, torch

x = torch.ones(20, 21, 22, 23, 24, device="npu", dtype=torch.float16)
grid = torch.zeros(20, 12, 11, 10, 3, device="npu", dtype=torch.float16)
torch.npu.synchronize()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
torch.grid_sampler_3d(x, grid, 0, 0, False)
torch.flip(x, [0])
torch.npu.synchronize()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_the_smaller_call_that_is_tried_is_smaller(fresh_python):
    grown_kb = int(fresh_python(CROWDED_SIZES).stdout)

    assert grown_kb < 64 * 1024  # The results have 10 MB, the tensors of the trial 1.


def test_the_first_large_call_of_a_kind_does_not_wait(fresh_python):
    assert fresh_python(FIRST_LARGE_CALLS).stdout.strip() == "none waited"
