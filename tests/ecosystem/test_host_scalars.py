"""Numbers and tensors of one element that stay on the host, beside device tensors."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from c_library import compiled
from torch import Tensor

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int64,
    torch.float16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
]

# x is on the device; h is on the host, has one element and no dimension.
FORMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "x + h": lambda x, h: x + h,
    "h + x": lambda x, h: h + x,
    "x * h": lambda x, h: x * h,
    "h * x": lambda x, h: h * x,
    "x - h": lambda x, h: x - h,
    "h - x": lambda x, h: h - x,
    "x / h": lambda x, h: x / h,
    "h / x": lambda x, h: h / x,
    "x ** h": lambda x, h: x**h,
    "h ** x": lambda x, h: h**x,
    "x == h": lambda x, h: x == h,
    "h != x": lambda x, h: h != x,
    "add, alpha": lambda x, h: torch.add(x, h, alpha=2),
    "sub, alpha": lambda x, h: torch.sub(h, x, alpha=2),
    "add_": lambda x, h: x.clone().add_(h),
    "add_, alpha": lambda x, h: x.clone().add_(h, alpha=2),
    "sub_": lambda x, h: x.clone().sub_(h),
    "mul_": lambda x, h: x.clone().mul_(h),
    "div_": lambda x, h: x.clone().div_(h),
    "pow_": lambda x, h: x.clone().pow_(h),
    "fill_": lambda x, h: x.clone().fill_(h),
    "add, out=": lambda x, h: torch.add(x, h, out=torch.empty_like(x)),
    "mul, out=": lambda x, h: torch.mul(h, x, out=torch.empty_like(x)),
    "where": lambda x, h: torch.where(x != 0, x, h),
    "where, other": lambda x, h: torch.where(x == 0, h, x),
    "lerp, weight": lambda x, h: torch.lerp(x, x + 1, h),
    "addcmul": lambda x, h: torch.addcmul(x, x, h),
    "addcdiv": lambda x, h: torch.addcdiv(x, x, h),
    "masked_fill": lambda x, h: x.masked_fill(x != 0, h),
    "index_fill": lambda x, h: x.index_fill(0, torch.tensor([1], device=x.device), h),
    "index_put": lambda x, h: x.index_put((torch.tensor([1], device=x.device),), h),
    "x[0] = h": lambda x, h: x.clone().__setitem__(0, h) or x,
    "number": lambda x, h: x + h.item() - h.item() * x,
}


def outcome(form: Callable[[Tensor, Tensor], Tensor], x: Tensor, h: Tensor) -> object:
    try:
        return form(x, h).cpu()
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("form", FORMS)
def test_a_host_scalar_gives_what_it_gives_on_cpu(form: str):
    for dtype in DTYPES:
        # Enough elements for vectors, which kernels load aligned.
        x, h = (torch.arange(64) % 3 + 1).to(dtype), torch.tensor(2).to(dtype)
        if dtype.is_complex:
            x, h = (
                x + torch.tensor(1j, dtype=dtype),
                h - torch.tensor(0.5j, dtype=dtype),
            )
        expected = outcome(FORMS[form], x, h)
        device = x.npu()
        # Twice: the first call of a kind takes another way.
        for _ in range(2):
            found = outcome(FORMS[form], device, h)
            if isinstance(expected, Tensor):
                torch.testing.assert_close(found, expected, rtol=0, atol=0)
            else:
                assert found == expected, dtype


def test_a_graph_replays_with_a_complex_number_of_the_host():
    x, h = torch.ones(3, dtype=torch.complex128, device="npu"), torch.tensor(2 - 1j)
    h = h.to(torch.complex128)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        y = torch.add(x, h, alpha=2) * (1 - 2j)

    x.fill_(3)
    graph.replay()

    assert y.tolist() == [(3 + 2 * (2 - 1j)) * (1 - 2j)] * 3


MARK = """
#include <c10/core/TensorImpl.h>
extern "C" void mark(c10::TensorImpl* t) { t->set_wrapped_number(true); }
"""


@pytest.fixture(scope="module")
def mark(tmp_path_factory):
    """What extensions do: give a tensor the lower rank of a Python number."""
    source = tmp_path_factory.mktemp("mark") / "mark.cpp"
    source.write_text(MARK)
    torch_folder = Path(torch.__file__).parent
    flags = ("-std=c++20", f"-isystem{torch_folder}/include", f"-L{torch_folder}/lib")
    library = compiled(source, *flags, "-lc10", compiler="g++")
    function = ctypes.CDLL(str(library)).mark
    function.argtypes = [ctypes.c_void_p]
    return lambda t: function(t._cdata)


def test_a_number_on_the_device_promotes_as_a_number(mark):
    def results(device):
        # More kinds of calls than there are tensors to stand for arguments.
        for rank in range(1, 12):
            torch.add(*torch.ones((2,) + (1,) * rank, device=device))
        for function in (torch.add, torch.mul, torch.maximum, torch.sub):
            number = torch.tensor(3, device=device)
            mark(number)
            x = torch.tensor(2, dtype=torch.int32, device=device)
            plain = torch.tensor([4, 5], device=device)
            for y in (function(x, number), function(plain, number), function(plain, x)):
                yield y.dtype, y.tolist()

    assert list(results("npu")) == list(results("cpu"))
