"""The foreach operators with kernels of our own give the cpu kernels' bits."""

import pytest
import torch

# Some below and some above where torch's kernel takes over; one not contiguous.
SHAPES = [(), (), (1,), (7,), (2, 3), (60, 60)]
SCALARS = [3, 0.1, 2**60 + 1, 1e300, True, -1e-40, 0, 1.0]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64]


def tensors(dtype: torch.dtype) -> list[torch.Tensor]:
    torch.manual_seed(0)
    made = [(torch.rand(shape) * 9).to(dtype) for shape in SHAPES]
    return [*made, (torch.rand(4, 6) * 9).to(dtype).t()]


def outcome(call, *args):
    """Return the results of a call, or the type of its error."""
    try:
        return call(*args)
    except (RuntimeError, TypeError) as error:
        return type(error)


def same(ours, theirs) -> bool:
    return len(ours) == len(theirs) and all(
        a.dtype == b.dtype
        and a.shape == b.shape
        and torch.equal(a.cpu().nan_to_num(), b.nan_to_num())
        for a, b in zip(ours, theirs, strict=True)
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["add_", "sub_", "mul_", "div_"])
def test_a_scalar_in_place(name, dtype):
    call = getattr(torch, f"_foreach_{name}")
    for scalar in SCALARS:
        theirs = tensors(dtype)
        ours = [t.npu() for t in theirs]

        got, expected = outcome(call, ours, scalar), outcome(call, theirs, scalar)

        assert isinstance(got, type) == isinstance(expected, type), scalar
        assert same(ours, theirs), scalar


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_number_to_the_power_of_each(dtype):
    for base in [0.9, 0.999, 2, 0, 1, -1.5, 1e300]:
        theirs = tensors(dtype)
        ours = [t.npu() for t in theirs]

        got = outcome(torch._foreach_pow, base, ours)
        expected = outcome(torch._foreach_pow, base, theirs)

        if isinstance(expected, type):
            assert got == expected, base
        else:
            assert same(got, expected), base


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_square_root_of_each(dtype):
    theirs = tensors(dtype)

    got = torch._foreach_sqrt([t.npu() for t in theirs])

    assert same(got, torch._foreach_sqrt(theirs))


def test_a_list_of_counters_to_a_power():
    counts = [torch.tensor(float(i)) for i in range(1, 400)]

    got = torch._foreach_pow(0.999, [t.npu() for t in counts])

    assert same(got, torch._foreach_pow(0.999, counts))
