"""Calls that cpu refuses because of their arguments are refused at the call.

That is so whatever their size, and whatever was called before.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


class Make:
    """Zeros of a device, of a size that a test chooses."""

    def __init__(self, device: str) -> None:
        self.device = device

    def __call__(self, *shape: int) -> Tensor:
        return torch.zeros(shape, device=self.device)

    def ints(self, n: int) -> Tensor:
        return torch.zeros(n, dtype=torch.int64, device=self.device)

    def mask(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.bool, device=self.device)


# A call that is right where the last argument is 0, and else wrong.
CALLS: dict[str, Callable[[Make, int, int], object]] = {
    "linear": lambda make, n, off: F.linear(make(n, n), make(n, n), make(n + off)),
    "convolution": lambda make, n, off: F.conv2d(
        make(1, 4, n, n), make(6, 4, 3, 3), make(6 + off)
    ),
    "grouped": lambda make, n, off: F.conv2d(
        make(1, 4, n, n), make(6 + off, 2, 3, 3), groups=2
    ),
    "transposed": lambda make, n, off: F.conv_transpose2d(
        make(1, 4, n, n), make(4 + off, 6, 3, 3)
    ),
    "put_rows": lambda make, n, off: make(n, n).index_put(
        (make.ints(3),), make(3, n - off)
    ),
    "put_masked": lambda make, n, off: make(n, n).index_put(
        (make.mask(n + off),), make(1, n)
    ),
    "put_columns": lambda make, n, off: make(2, n, n).__setitem__(
        (slice(None), make.ints(7)), make(2, 7 + off, n)
    ),
    "reduce_rows": lambda make, n, off: make(n, n).index_reduce(
        0, make.ints(3 + off), make(3, n), "amax"
    ),
    "put": lambda make, n, off: make(n, n).put(make.ints(4), make(4 + off)),
    "draws": lambda make, n, off: (make(4, n) + 1).multinomial(n + off),
    "reflectors": lambda make, n, off: torch.ormqr(  # a product of n matrices
        make(min(n, 260), min(n, 260)), make(min(n, 260) - off), make(min(n, 260), 3)
    ),
    "attention": lambda make, n, off: flash(*[make(1, 2, n, 8)] * 3, 0.5 * off),
    "scattered": lambda make, n, off: make(n, n).masked_scatter_(
        make.mask(n - off, n), make(n, n)
    ),
    "normal": lambda make, n, off: torch.normal(make(n, n), 1.0, out=make(n, n - off)),
}


def error_of(call: Callable[[], object]) -> tuple[type, str]:
    with pytest.raises((RuntimeError, IndexError)) as raised:
        call()
    return type(raised.value), str(raised.value).splitlines()[0]


@pytest.mark.parametrize("n", [12, 520])
@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_call_is_refused_as_on_cpu(name: str, n: int):
    call, npu = CALLS[name], Make("npu")
    on_cpu = error_of(lambda: call(Make("cpu"), n, 1))

    for _ in range(2):
        assert error_of(lambda: call(npu, n, 1)) == on_cpu
        call(npu, n, 0)
        torch.npu.synchronize()


# Attention may draw numbers that a program would miss, so nobody tries it.
@pytest.mark.parametrize("name", [n for n in CALLS if n != "attention"])
def test_a_capture_refuses_a_wrong_call_in_cpus_words(name: str):
    on_cpu = error_of(lambda: CALLS[name](Make("cpu"), 12, 1))

    with torch.npu.graph(torch.npu.NPUGraph()):
        assert error_of(lambda: CALLS[name](Make("npu"), 12, 1)) == on_cpu


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
