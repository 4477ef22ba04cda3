"""Numbers of many launches look as independent as those of one.

Each launch fills a generator's whole state from seed and offset (Philox 4x32-10). A
battery of the usual tests looks across launches, and across seeds, where states that
have something in common would show. Limits are five standard deviations, and the seeds
are fixed.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

pytestmark = pytest.mark.nightly

LAUNCHES, NUMBERS = 1 << 16, 16
SIGMAS = 5


def words(launches: int, numbers: int, seed_of: Callable[[int], int] | None) -> Tensor:
    """Return 32 random bits each, [launches, numbers], one launch for each row."""
    torch.npu.manual_seed(2026)
    out = torch.empty(launches, numbers, dtype=torch.int64, device="npu")
    for i, row in enumerate(out.unbind()):
        if seed_of:
            torch.npu.manual_seed(seed_of(i))
        row.random_(0, 1 << 32)
    return out.cpu()


ORDERS: dict[str, Callable[[int], int] | None] = {
    "launches": None,
    "seeds": lambda i: i,
    "high seeds": lambda i: i << 32,
}


@pytest.fixture(scope="module", params=ORDERS)
def drawn(request: pytest.FixtureRequest) -> Tensor:
    return words(LAUNCHES, NUMBERS, ORDERS[request.param])


def is_uniform(values: Tensor, kinds: int) -> bool:
    """Whether the chi-square statistic of values in [0, kinds) is an ordinary one."""
    counts = torch.bincount(values.flatten(), minlength=kinds).double()
    expected = values.numel() / kinds
    statistic = ((counts - expected) ** 2 / expected).sum().item()
    freedom = kinds - 1
    return abs(statistic - freedom) < SIGMAS * math.sqrt(2 * freedom)


def test_no_launch_of_a_million_repeats_another():
    first = words(1_000_000, 2, None)
    assert len(torch.unique(first, dim=0)) == len(first)


def test_each_bit_is_set_half_of_the_time(drawn):
    limit = SIGMAS * 0.5 * math.sqrt(LAUNCHES)
    for bit in range(32):
        ones = (drawn >> bit & 1).sum(0)
        assert (ones - LAUNCHES / 2).abs().max() < limit * 1.2, f"bit {bit}"


@pytest.mark.parametrize("shift", [0, 8, 16, 24])
def test_bytes_are_uniform(drawn, shift):
    assert is_uniform(drawn >> shift & 0xFF, 256)


@pytest.mark.parametrize("apart", [1, 2, 7, 64, 4096])
def test_pairs_of_launches_are_uniform(drawn, apart):
    for shift in (0, 28):
        nibbles = drawn >> shift & 0xF
        assert is_uniform(nibbles[:-apart] * 16 + nibbles[apart:], 256)


@pytest.mark.parametrize("apart", [1, 2, 7, 64, 4096])
def test_launches_do_not_correlate(drawn, apart):
    u = drawn.double() / (1 << 32) - 0.5
    product = (u[:-apart] * u[apart:]).mean().item() * 12
    assert abs(product) < SIGMAS / math.sqrt((LAUNCHES - apart) * NUMBERS)


def test_exclusive_ors_of_neighbours_have_half_of_their_bits(drawn):
    different = drawn[1:] ^ drawn[:-1]
    bits = sum((different >> bit & 1).sum().item() for bit in range(32))
    total = different.numel() * 32
    assert abs(bits - total / 2) < SIGMAS * 0.5 * math.sqrt(total)


def test_birthdays_are_as_far_apart_as_they_should_be(drawn):
    """Marsaglia's birthday spacings: how many distances come twice is Poisson."""
    rows = drawn.flatten()[: 1 << 20].view(-1, 1 << 10) >> 4  # 2^28 days, 2^10 births
    repeats = 0
    for births in rows:
        gaps = births.sort().values.diff().sort().values
        repeats += int((gaps.diff() == 0).sum())
    expected = len(rows) * (1 << 30) / (4 * (1 << 28))
    assert abs(repeats - expected) < SIGMAS * math.sqrt(expected)


def test_ranks_of_binary_matrices_are_full_as_often_as_they_should_be(drawn):
    """A 32 x 32 matrix of random bits has full rank with probability 0.2888."""
    rows = drawn.flatten()[: 1 << 18].view(-1, 32).clone()
    full = torch.ones(len(rows), dtype=torch.bool)
    for bit in range(32):
        has = rows >> bit & 1
        pivot = has.argmax(1, keepdim=True)
        full &= has.any(1)
        row = rows.gather(1, pivot)
        rows = torch.where(has.bool(), rows ^ row, rows)
        rows.scatter_(1, pivot, 0)  # it is used up
    share, n = 0.288788, len(rows)
    limit = SIGMAS * math.sqrt(n * share * (1 - share))
    assert abs(int(full.sum()) - n * share) < limit
