"""What only the kernel can know fails on the device, and never the process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

SIZES = [8, 100_000]  # one thread; as many as large kernels have


@pytest.fixture(autouse=True)
def no_error_left():
    yield
    torch.npu.clear_error()


@pytest.mark.parametrize("size", SIZES)
def test_an_index_out_of_range_names_the_users_line(size: int):
    function = torch.compile(lambda x, i: x[i] * 2)
    x, i = torch.ones(size).npu(), torch.zeros(size, dtype=torch.long).npu()
    assert function(x, i).sum().item() == 2 * size
    i[-1] = size

    function(x, i)
    with pytest.raises(torch.npu.DeviceError) as caught:
        torch.npu.synchronize()

    text = str(caught.value)
    assert "npu_fused_index_mul_0 failed" in text
    assert "index out of bounds" in text
    assert Path(__file__).name in text


def trunc(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.div(a, b, rounding_mode="trunc")


@pytest.mark.parametrize(
    "divide",
    [torch.floor_divide, torch.remainder, torch.fmod, trunc],
    ids=lambda f: f.__name__,
)
def test_a_zero_divisor_is_an_error_as_on_cpu(divide: Callable[..., torch.Tensor]):
    function = torch.compile(lambda a, b: divide(a, b), dynamic=True)
    for size in SIZES:
        a = torch.randint(-100, 100, (size,))
        b = torch.randint(1, 10, (size,)) * (a % 2 * 2 - 1)
        assert torch.equal(function(a.npu(), b.npu()).cpu(), divide(a, b))
        b[size // 2] = 0
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            divide(a, b)
        function(a.npu(), b.npu())
        with pytest.raises(torch.npu.DeviceError, match="ZeroDivisionError"):
            torch.npu.synchronize()
        torch.npu.clear_error()
