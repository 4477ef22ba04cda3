"""Operators on lists of tensors: bits, versions and sizes of what they write."""

import pytest
import torch

from tests.ecosystem.both import both, outcome, same

# Some below and some above where torch's kernel takes over; one not contiguous.
LENGTHS = [(), (), (1,), (7,), (2, 3), (60, 60)]
SCALARS = [3, 0.1, 2**60 + 1, 1e300, True, -1e-40, 0, 1.0]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64]


def tensors(dtype):
    torch.manual_seed(0)
    made = [(torch.rand(shape) * 9).to(dtype) for shape in LENGTHS]
    return [*made, (torch.rand(4, 6) * 9).to(dtype).t()]


CALLS = {
    **{
        name: [
            lambda t, name=name, s=s: getattr(torch, f"_foreach_{name}")(t, s) or t
            for s in SCALARS
        ]
        for name in ("add_", "sub_", "mul_", "div_")
    },
    "pow": [
        lambda t, base=base: torch._foreach_pow(base, t)
        for base in (0.9, 0.999, 2, 0, 1, -1.5, 1e300)
    ],
    "sqrt": [torch._foreach_sqrt],
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_each_tensor_of_a_list_has_the_bits_of_cpu(name, dtype):
    for call in CALLS[name]:
        same(call, tensors(dtype))


def test_a_list_of_counters_to_a_power():
    counts = [torch.tensor(float(i)) for i in range(1, 400)]

    same(lambda counts: torch._foreach_pow(0.999, counts), counts)


ONES = (torch.ones, (3,)), (torch.ones, (2, 2))
WRITING = {
    "_foreach_add_": lambda t: torch._foreach_add_(t, 1),
    "_foreach_exp_": lambda t: torch._foreach_exp_(t),
    "_foreach_copy_": lambda t: torch._foreach_copy_(t, [x.clone() for x in t]),
    "_foreach_zero_": lambda t: torch._foreach_zero_(t),
    "_foreach_lerp_": lambda t: torch._foreach_lerp_(t, [x.clone() for x in t], 0.5),
    "twice the same": lambda t: torch._foreach_mul_([t[0], t[1], t[0]], 2),
    "out": lambda t: torch.ops.aten._foreach_add.Scalar_out(
        [x.clone() for x in t], 1, out=t
    ),
    "not in place": lambda t: torch._foreach_add(t, 1),
}


@pytest.mark.parametrize("how", WRITING)
def test_versions_are_counted_as_on_cpu(how):
    versions = []
    for device in ("cpu", "npu"):
        tensors = [make(shape, device=device) for make, shape in ONES]
        for _ in range(2):
            WRITING[how](tensors)
        versions.append([t._version for t in tensors])
    assert versions[0] == versions[1]


def test_backward_refuses_what_a_list_operator_has_overwritten():
    x = torch.ones(3, device="npu", requires_grad=True)
    y = x.exp()
    torch._foreach_mul_([y], 2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_inference_tensors_have_no_version():
    with torch.inference_mode():
        t = torch.ones(3, device="npu")
        torch._foreach_add_([t], 1)
    assert t.tolist() == [2, 2, 2]


ENTRIES = [torch.arange(1.0, 5.0).reshape(2, 2), torch.arange(1.0, 3.0)]


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


@pytest.mark.parametrize(
    "name", ["abs", "neg", "exp", "sqrt", "sign", "ceil", "trunc", "reciprocal", "add"]
)
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.complex64])
def test_a_list_of_a_rare_dtype_is_taken_or_refused_at_the_call(name, dtype):
    call, more = getattr(torch, f"_foreach_{name}"), (1,) if name == "add" else ()
    said = []
    for device in ("cpu", "npu"):
        found = outcome(call, [torch.ones(2, dtype=dtype, device=device)], *more)
        said.append(found[0] if isinstance(found, tuple) else found[0][2].tolist())
    assert said[0] == said[1]
