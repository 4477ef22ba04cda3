"""Results of element-wise calls of which only the sizes are new."""

from __future__ import annotations

import itertools

import pytest
import torch

from tests.ecosystem.both import same

SHAPES = [s for rank in range(4) for s in itertools.product((1, 2, 3), repeat=rank)]
SHAPES += [(0,), (2, 0), (0, 1)]
FEW = [(3, 2), (2,), (), (1, 2), (3, 1), (4, 3, 2)]


def filled(shape, dtype=torch.float32):
    numbers = torch.arange(1, 1 + torch.Size(shape).numel()).reshape(shape)
    return numbers.to(dtype)


@pytest.mark.parametrize(
    "call",
    [
        torch.add,
        torch.gt,
        lambda a, b: torch.true_divide(b, a),
        # A result in place is no larger than its tensor.
        lambda a, b: a.sub_(b),
        # One of another size than the given tensor resizes it.
        lambda a, b: torch.add(a, b, out=a.new_empty(12)[:0]),
    ],
    ids=["add", "gt", "div", "in place", "out"],
)
def test_expanded_arguments_give_what_they_give_on_cpu(call):
    for a, b in itertools.product(SHAPES, SHAPES):
        same(call, filled(a), filled(b))


def test_dtypes_of_results_follow_those_of_the_arguments():
    dtypes = (torch.uint8, torch.int64, torch.float16, torch.float64)
    for a, b in itertools.product(dtypes, dtypes):
        for shape in [(2, 3), (4, 1), (1, 5)]:
            same(torch.mul, filled(shape, a), filled((1,), b))


def test_three_arguments_and_numbers():
    for three in itertools.product(FEW, repeat=3):
        same(torch.addcmul, *map(filled, three))
    for shape in SHAPES:
        same(lambda x: (torch.clamp(x, 2, 3), x.long() ** 2), filled(shape))


def test_sizes_do_not_tell_how_arguments_with_gaps_lie():
    for n, m in itertools.product((1, 2, 3), repeat=2):
        same(torch.add, filled((n, m)), filled((n, m)))
        same(lambda x, y: x.t() + y, filled((n, m)), filled((m, n)))
        images = filled((2, 2, n, m))
        same(torch.neg, images)
        same(lambda x: x.contiguous(memory_format=torch.channels_last) * 2, images)
