"""Results of element-wise calls of which only the sizes are new."""

from __future__ import annotations

import itertools

import pytest
import torch

SHAPES = [s for rank in range(4) for s in itertools.product((1, 2, 3), repeat=rank)]
SHAPES += [(0,), (2, 0), (0, 1)]


def filled(shape, dtype=torch.float32):
    numbers = torch.arange(1, 1 + torch.Size(shape).numel()).reshape(shape)
    return numbers.to(dtype)


def same(call, *shapes_and_dtypes):
    """Make the call on both devices, and compare what it gives or raises."""
    outcomes = []
    for device in ("cpu", "npu"):
        arguments = [filled(*each).to(device) for each in shapes_and_dtypes]
        try:
            result = call(*arguments)
        except (RuntimeError, IndexError) as error:
            outcomes.append(str(error))
        else:
            outcomes.append((result.cpu(), result.stride(), result.dtype))
    on_cpu, on_npu = outcomes
    if isinstance(on_cpu, str) or isinstance(on_npu, str):
        assert on_npu == on_cpu
        return
    assert on_npu[1:] == on_cpu[1:], shapes_and_dtypes
    torch.testing.assert_close(on_npu[0], on_cpu[0], rtol=0, atol=0)


@pytest.mark.parametrize(
    "call",
    [torch.add, torch.gt, lambda a, b: torch.true_divide(b, a)],
    ids=["add", "gt", "div"],
)
def test_expanded_arguments_give_what_they_give_on_cpu(call):
    for a, b in itertools.product(SHAPES, SHAPES):
        same(call, (a,), (b,))


def test_dtypes_of_results_follow_those_of_the_arguments():
    dtypes = (torch.uint8, torch.int64, torch.float16, torch.float64)
    for a, b in itertools.product(dtypes, dtypes):
        for shape in [(2, 3), (4, 1), (1, 5)]:
            same(torch.mul, (shape, a), ((1,), b))


def test_a_result_in_place_is_no_larger_than_its_tensor():
    for a, b in itertools.product(SHAPES, SHAPES):
        same(lambda x, y: x.sub_(y), (a,), (b,))


def test_a_result_into_a_tensor_of_another_size_resizes_it():
    def into(a, b, out):
        return torch.add(a, b, out=out[:0])

    for n in range(1, 6):
        same(into, ((n, 2),), ((2,),), ((12,),))


def test_three_arguments_and_numbers():
    shapes = [(3, 2), (2,), (), (1, 2), (3, 1), (4, 3, 2)]
    for three in itertools.product(shapes, repeat=3):
        same(torch.addcmul, *((shape,) for shape in three))
    for shape in SHAPES:
        same(lambda x: torch.clamp(x, 2, 3), (shape,))
        same(lambda x: x**2, (shape, torch.int64))


def test_sizes_do_not_tell_how_arguments_with_gaps_lie():
    def transposed(x, y):
        return x.t() + y

    def channels_last(x):
        return torch.relu(x.contiguous(memory_format=torch.channels_last)) * 2

    for n, m in itertools.product((1, 2, 3), repeat=2):
        same(torch.add, ((n, m),), ((n, m),))
        same(transposed, ((n, m),), ((m, n),))
        same(lambda x: torch.neg(x), ((2, 2, n, m),))
        same(channels_last, ((2, 2, n, m),))


def test_what_differs_in_a_text_is_another_kind_of_call():
    for n in range(2, 6):
        for mode in ("trunc", "floor"):
            same(
                lambda x, y, m=mode: torch.div(-x, y, rounding_mode=m), ((n,),), ((n,),)
            )
        for how in ("none", "tanh"):
            x = torch.linspace(-1, 1, n)
            expected = torch.nn.functional.gelu(x, approximate=how)
            got = torch.nn.functional.gelu(x.npu(), approximate=how)
            torch.testing.assert_close(got.cpu(), expected)
