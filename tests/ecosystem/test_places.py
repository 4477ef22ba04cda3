"""Tensors of several places in one call: devices by name, the host's scalars, masks."""

import ctypes
from pathlib import Path

import pytest
import torch

from tests.ecosystem.both import both, outcome, same
from tests.graphs.captured import captured


def test_a_scalar_of_the_host_in_a_list_is_written_once_per_call():
    device, scalar = torch.ones(3).npu(), torch.tensor(1.0)
    for expected in (2.0, 3.0, 4.0):
        torch._foreach_add_([device, scalar], 1)
        doubled = torch._foreach_mul([device, scalar], 2.0)
        assert (scalar.item(), doubled[1].item()) == (expected, 2 * expected)
        assert device.tolist() == [expected] * 3
        assert doubled[0].tolist() == [2 * expected] * 3


def test_reading_a_scalar_of_the_host_leaves_it_alone():
    x, scalar = torch.ones(3).npu(), torch.tensor(2.0)
    for _ in range(2):
        torch._foreach_mul_([x], [scalar])
        x.add_(scalar)
    assert scalar.item() == 2.0
    assert x.tolist() == [10.0] * 3


def test_a_scalar_of_the_host_is_not_written_by_a_kernel_of_the_device():
    x, scalar = torch.ones(()).npu(), torch.tensor(1.0)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="same device"):
            scalar.add_(x)
        with pytest.raises(RuntimeError, match="same device"):
            torch.add(x, x, out=scalar)
    assert scalar.item() == 1.0


@pytest.mark.parametrize("non_blocking", [False, True])
def test_foreach_copy_between_host_and_device(non_blocking):
    host = [torch.arange(4.0), torch.ones(2, 3)]
    device = [torch.empty(4).npu(), torch.empty(2, 3).npu()]

    torch._foreach_copy_(device, host, non_blocking)
    back = [torch.zeros(4), torch.zeros(2, 3)]
    torch._foreach_copy_(back, device)

    assert all(torch.equal(b, h) for b, h in zip(back, host, strict=True))
    with pytest.raises(RuntimeError, match=r"number of tensors|length"):
        torch._foreach_copy_(device, host[:1])


MASKED = {
    "one mask": lambda x, m, v: x[m],
    "a mask of two dimensions": lambda x, m, v: x[:, m[:3, None].expand(3, 4)],
    "a mask and a number": lambda x, m, v: x[m[:2], :, 1],
    "a mask after all": lambda x, m, v: x[:, m[:3]],
    "a byte mask": lambda x, m, v: x[m[:2].to(torch.uint8)],
    "written": lambda x, m, v: x.index_put((m[:2],), v),
}


@pytest.mark.parametrize("name", MASKED)
def test_a_mask_of_the_host_does_not_wait(name):
    x = torch.arange(24.0).reshape(2, 3, 4)
    mask, value = torch.tensor([True, False, True]), torch.tensor(-1.0)
    call = MASKED[name]
    if name == "one mask":
        mask = torch.tensor([True, False])
    expected, own, number = call(x, mask, value), x.npu(), value.npu()
    call(own, mask, number)
    with torch.npu.sync_guard("error"):
        got = call(own, mask, number)
    torch.testing.assert_close(got.cpu(), expected)


def test_a_mask_that_does_not_fit_is_refused_as_on_cpu():
    x, mask = torch.ones(2, 3), torch.tensor([True, False, True])
    assert outcome(x.npu().__getitem__, mask) == outcome(x.__getitem__, mask)


FACTORIES = """
import torch
for _ in range(2):
    for t in (
        torch.tril_indices(3, 3, device="npu:1"),
        torch.triu_indices(3, 3, device="npu:1"),
        torch.arange(3, device="npu:1"),
        torch.linspace(0, 1, 3, device="npu:1"),
        torch.randperm(4, device="npu:1"),
        torch.eye(2, device="npu:1"),
        torch.hann_window(3, device="npu:1"),
        torch.rand(2, device="npu:1"),
    ):
        assert t.device == torch.device("npu:1"), t.device
assert torch.tril_indices(3, 3, device="npu").device.index == 0
with torch.npu.device(1):
    assert torch.tril_indices(3, 3, device="npu").device.index == 1
    assert torch.tril_indices(3, 3, device="npu:0").device.index == 0
for layout in (torch.sparse_coo, torch.sparse_csr):
    x = torch.eye(3, device="npu:1").to_sparse(layout=layout)
    assert x.device.index == 1 and x.values().device.index == 1
    assert torch.equal(x.to_dense().cpu(), torch.eye(3))
i = torch.tensor([[0, 1], [1, 0]], device="npu:1")
v = torch.ones(2, device="npu:1")
s = torch.sparse_coo_tensor(i, v, (2, 2), device="npu:1")
assert s.coalesce().device.index == 1
assert (s + s).to_dense().cpu().tolist() == [[0, 2], [2, 0]]
assert torch.sparse.sum(s, 0).to_dense().tolist() == [1, 1]
e = torch.sparse_coo_tensor((2, 2), device="npu:1")
assert e.device.index == 1 and e._values().device.index == 1
assert s.clone().device.index == 1
assert s.cpu().to("npu:1")._indices().device.index == 1
print("ok")
"""


def test_the_named_device_is_where_a_factory_makes_its_tensor(python):
    assert python(FACTORIES, NPU_DISPATCH_DEVICES="2").stdout.strip() == "ok"


DTYPES = [torch.bool, torch.uint8, torch.int64, torch.float16, torch.float32]
DTYPES += [torch.float64, torch.complex64, torch.complex128]

# x is on the device; h is on the host, has one element and no dimension.
FORMS = {
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


@pytest.mark.parametrize("form", FORMS)
def test_a_host_scalar_gives_what_it_gives_on_cpu(form):
    for dtype in DTYPES:
        # Enough elements for vectors, which kernels load aligned.
        x, h = (torch.arange(64) % 3 + 1).to(dtype), torch.tensor(2).to(dtype)
        if dtype.is_complex:
            x, h = x + 1j, h - 0.5j
        same(lambda x, h=h: FORMS[form](x, h), x, times=2)


def test_a_graph_replays_with_a_complex_number_of_the_host():
    x, h = torch.ones(3, dtype=torch.complex128, device="npu"), torch.tensor(2 - 1j)
    h = h.to(torch.complex128)
    graph, y = captured(lambda: torch.add(x, h, alpha=2) * (1 - 2j))

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
    from c_library import compiled  # which a child that imports this file has not

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


SHAPES = [((2, 3), (3, 2)), ((1,), (3,)), ((0, 3), (3, 0)), ((3,), (2, 3)), ((), (2,))]


@pytest.mark.parametrize("devices", [("npu", "npu"), ("npu", "cpu"), ("cpu", "npu")])
def test_error_has_the_words_of_cpu(devices):
    for shapes in SHAPES:
        to, source = map(torch.ones, shapes)
        expected = outcome(to.copy_, source)
        assert outcome(to.to(devices[0]).copy_, source.to(devices[1])) == expected


# A tensor that x is given, a value that may lie elsewhere.
VALUES = {
    "fill_": lambda x, value: x.fill_(value),
    "fill": lambda x, value: torch.fill(x, value),
    "masked_fill_": lambda x, value: x.masked_fill_(x > 1, value),
    "masked_fill": lambda x, value: x.masked_fill(x > 1, value),
    "index_put_": lambda x, value: x.index_put_((x[:1].long() - 1,), value),
    "index_put": lambda x, value: x.index_put((x[:1].long() - 1,), value),
    "accumulate": lambda x, value: x.index_put_(
        (x.long() * 0,), value, accumulate=True
    ),
    "index_fill_": lambda x, value: x.index_fill_(0, x[:1].long(), value),
    "index_fill": lambda x, value: x.index_fill(0, x[:1].long(), value),
    "where": lambda x, value: torch.where(x > 1, x, value),
    "where, first": lambda x, value: torch.where(x > 1, value, x),
    "setitem": lambda x, value: x.__setitem__(x > 1, value) or x,
}


CONVERTING = ["fill_", "fill", "masked_fill_", "masked_fill", "index_fill_", "setitem"]


ELSEWHERE = """
import torch
from tests.ecosystem.test_places import CONVERTING, VALUES
for form, write in VALUES.items():
    expected = write(torch.arange(1.0, 4.0), torch.tensor(7.0))
    for dtype in (torch.float32, torch.int64):
        if dtype == torch.int64 and form not in CONVERTING:
            continue  # refused on cpu, or of another dtype
        # Twice: the first call of a kind takes another way.
        for _ in range(2):
            value = torch.tensor(7, dtype=dtype, device="npu:1")
            found = write(torch.arange(1.0, 4.0, device="npu:0"), value)
            assert found.device == torch.device("npu:0"), form
            assert torch.equal(found.cpu(), expected), form
x, more = torch.ones(1, device="npu:0"), torch.ones(1, device="npu:1")
for refused in (lambda: torch.where(x > 0, more, x), lambda: x.fill_(more)):
    try:
        refused()
        print("not refused")
    except RuntimeError as error:
        assert "device" in str(error) or "dimension" in str(error), error
print("ok")
"""


def test_a_value_may_be_on_another_device(python):
    done = python(ELSEWHERE, NPU_DISPATCH_DEVICES="2")
    assert done.stdout.strip() == "ok", done.stdout + done.stderr


ON_THE_HOST = ["fill_", "fill", "index_put_", "accumulate", "index_fill_"]


@pytest.mark.parametrize("form", ON_THE_HOST)
def test_a_tensor_of_the_host_takes_a_value_of_the_device(form):
    expected = VALUES[form](torch.arange(1.0, 4.0), torch.tensor(7.0))

    for _ in range(2):
        x = torch.arange(1.0, 4.0)
        version = x._version
        found = VALUES[form](x, torch.tensor(7.0, device="npu"))

        assert found.device.type == "cpu"
        assert torch.equal(found, expected)
        assert x._version == version + (found is x)


def test_the_gradient_of_a_filled_tensor():
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    y.fill_(torch.tensor(3.0, device="npu"))

    y.sum().backward()

    assert x.grad is not None and x.grad.tolist() == [0, 0, 0]


def test_a_nested_view_takes_its_sizes_from_the_host():
    def padded(values):
        sizes, strides = torch.tensor([[2], [4]]), torch.tensor([[1], [1]])
        nested = torch._nested_view_from_buffer(
            values, sizes, strides, torch.tensor([0, 2])
        )
        values.mul_(2)
        return nested.to_padded_tensor(0.0)

    both(padded, torch.arange(6.0))
