"""Arguments that lie elsewhere than the call, and results of another size than said."""

from __future__ import annotations

import pytest
import torch

from tests.ecosystem.both import both, outcome, same

ENTRIES = [torch.arange(1.0, 5.0).reshape(2, 2), torch.arange(1.0, 3.0)]


VALUES = {
    "fill_": lambda x, value: x.fill_(value),
    "fill": lambda x, value: torch.fill(x, value),
    "masked_fill_": lambda x, value: x.masked_fill_(x > 1, value),
    "masked_fill": lambda x, value: x.masked_fill(x > 1, value),
    "index_put_": lambda x, value: x.index_put_((x[:1].long() - 1,), value),
    "index_put": lambda x, value: x.index_put((x[:1].long() - 1,), value),
    "accumulate": lambda x, value: x.index_put_(
        (torch.zeros(3, dtype=torch.long, device=x.device),), value, accumulate=True
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
from tests.ecosystem.test_outsiders import CONVERTING, VALUES

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


@pytest.mark.parametrize("name", ["addcdiv", "addcmul"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_factors_of_a_list_are_a_tensor_of_the_host(name, dtype):
    factors = torch.tensor([2, 3]).to(dtype)

    def new(entries, others):
        return getattr(torch, f"_foreach_{name}")(entries, others, others, factors)

    def in_place(entries, others):
        versions = [t._version for t in entries]
        getattr(torch, f"_foreach_{name}_")(entries, others, others, factors)
        return entries, [t._version - v for t, v in zip(entries, versions, strict=True)]

    others = [t + 1 for t in ENTRIES]
    both(new, ENTRIES, others)
    both(in_place, ENTRIES, others)


@pytest.mark.parametrize(
    "factors", [torch.ones(3), torch.ones(2, 1), torch.ones(4)[::2]]
)
def test_factors_that_do_not_fit_are_refused_as_on_cpu(factors):
    def call(entries):
        return torch._foreach_addcmul(entries, entries, entries, factors)

    same(call, ENTRIES)


def test_a_nested_view_takes_its_sizes_from_the_host():
    def padded(values):
        nested = torch._nested_view_from_buffer(
            values, torch.tensor([[2], [4]]), torch.tensor([[1], [1]]),
            torch.tensor([0, 2]),
        )  # fmt: skip
        values.mul_(2)
        return nested.to_padded_tensor(0.0)

    both(padded, torch.arange(6.0))


OUTS = {
    "max": (torch.ops.aten._foreach_max.out, ()),
    "norm": (torch.ops.aten._foreach_norm.Scalar_out, (2,)),
    "powsum": (torch.ops.aten._foreach_powsum.Scalar_out, (2,)),
    "sqrt": (torch.ops.aten._foreach_sqrt.out, ()),
    "add": (torch.ops.aten._foreach_add.Scalar_out, (3,)),
    "mul": (torch.ops.aten._foreach_mul.ScalarList_out, ([2.0, 3.0],)),
}


@pytest.mark.parametrize("shape", [(0,), (2, 2), (5,)])
@pytest.mark.parametrize("name", OUTS)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_what_a_list_operator_writes_is_resized(name, shape):
    function, arguments = OUTS[name]

    def run(entries, outs):
        for _ in range(2):
            function(entries, *arguments, out=outs)
        return outs, [t._version for t in outs]

    both(run, ENTRIES, [torch.zeros(shape), torch.zeros(shape)])


def test_batch_norm_that_updates_nothing():
    def run(x, weight, mean, variance):
        function = torch.ops.aten._batch_norm_no_update
        return function(x, weight, None, mean, variance, 0.1, 1e-5)

    both(run, torch.rand(3, 4), torch.rand(4), torch.rand(4), torch.rand(4))


@pytest.mark.parametrize(
    "name", ["abs", "neg", "exp", "sqrt", "sign", "ceil", "trunc", "reciprocal", "add"]
)
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.complex64])
def test_a_list_of_a_rare_dtype_is_taken_or_refused_at_the_call(name, dtype):
    said = []
    for device in ("cpu", "npu"):
        call = getattr(torch, f"_foreach_{name}")
        more = (1,) if name == "add" else ()
        found = outcome(call, [torch.ones(2, dtype=dtype, device=device)], *more)
        said.append(found[0] if isinstance(found, tuple) else found[0][2].tolist())
    assert said[0] == said[1]


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("shape", [(4,), (2, 5)])
def test_fused_cells_refuse_what_holds_no_gates(shape, cell):
    x = torch.ones(shape, device="npu")
    with pytest.raises(RuntimeError, match="gates side by side"):
        getattr(torch.ops.aten, f"_thnn_fused_{cell}_cell")(x, x, x)


def test_a_synchronized_batch_norm_refuses_what_has_no_channels():
    x = torch.ones(4, device="npu")
    with pytest.raises(RuntimeError, match="dimension of channels"):
        torch.batch_norm_elemt(x, None, None, x, x, 1e-5)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: torch.normal(0.0, torch.tensor([-1.0]).npu()), "std >= 0"),
        (lambda: torch.bernoulli(torch.tensor([2.0]).npu()), "p_in <= 1"),
    ],
)
def test_values_that_only_the_kernel_sees_are_refused_where_the_program_waits(
    call, said
):
    call()

    with pytest.raises(torch.npu.DeviceError, match=said):
        torch.npu.synchronize()
    torch.npu.clear_error()
