"""Seeds, states, and numbers of many launches that are independent of each other."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor


def test_the_state_is_16_bytes():
    state = torch.npu.get_rng_state()

    assert state.dtype == torch.uint8
    assert state.device.type == "cpu"
    assert state.numel() == 16


def test_all_64_bits_of_a_seed_count():
    drawn = []
    for seed in (0, 1, 1 << 32, 2 << 32, 1 << 63):
        torch.npu.manual_seed(seed)
        drawn.append(torch.rand(10, device="npu").tolist())

    assert len({tuple(numbers) for numbers in drawn}) == len(drawn)


def test_a_restored_state_repeats_the_draw():
    state, states = torch.npu.get_rng_state(), torch.npu.get_rng_state_all()
    first = torch.rand(10, device="npu")

    torch.npu.set_rng_state(state)
    second = torch.rand(10, device="npu")
    torch.npu.set_rng_state_all(states)
    third = torch.rand(10, device="npu")

    assert torch.equal(first, second) and torch.equal(first, third)


def test_eight_bytes_are_a_seed_with_offset_zero():
    torch.npu.manual_seed(7)
    whole = torch.npu.get_rng_state()

    torch.npu.set_rng_state(whole[:8])

    assert torch.equal(torch.npu.get_rng_state(), whole)


@pytest.mark.parametrize(
    ("state", "error", "why"),
    [
        (torch.zeros(15, dtype=torch.uint8), RuntimeError, "wrong size"),
        (torch.zeros(16), TypeError, "must be a torch.ByteTensor"),
    ],
    ids=["size", "dtype"],
)
def test_a_bad_state_is_refused(state, error, why):
    with pytest.raises(error, match=why):
        torch.npu.set_rng_state(state)


def test_a_bad_device_is_refused():
    state = torch.npu.get_rng_state()

    for device in ("cpu", torch.device("cpu"), "cuda:0"):
        with pytest.raises(ValueError, match="npu"):
            torch.npu.set_rng_state(torch.zeros(16, dtype=torch.uint8), device)
    assert torch.npu.get_rng_state().equal(state)


def test_seed_all_uses_one_seed():
    torch.npu.seed_all()

    seeds = {generator.initial_seed() for generator in torch.npu.default_generators}
    assert len(seeds) == 1


def test_a_seed_set_before_initialisation_counts(python):
    code = """
import npu_dispatch, torch
torch.npu.manual_seed(9)
assert not torch.npu.is_initialized()
a = torch.rand(4, device="npu")
torch.npu.manual_seed(9)
assert torch.equal(a, torch.rand(4, device="npu"))
"""
    python(code)


def test_an_own_generator_is_independent():
    generator = torch.Generator("npu:0").manual_seed(1)
    state = torch.npu.get_rng_state()

    torch.rand(4, device="npu", generator=generator)

    assert torch.equal(torch.npu.get_rng_state(), state)


def test_an_offset_is_a_multiple_of_four():
    generator = torch.Generator("npu:0")
    generator.set_offset(8)
    before = generator.get_state()

    with pytest.raises(RuntimeError, match="multiple of 4"):
        generator.set_offset(3)
    bad = before.clone()
    bad[8] = 5
    with pytest.raises(RuntimeError, match="multiple of 4"):
        generator.set_state(bad)
    assert generator.get_offset() == 8 and generator.get_state().equal(before)


def draws(count: int, size: int, offset: int = 0) -> torch.Tensor:
    """Return the first numbers of so many launches, 63 bits each."""
    state = torch.tensor([0, 4 * offset], dtype=torch.int64).view(torch.uint8)
    torch.npu.set_rng_state(state)
    found = torch.empty(count, size, dtype=torch.int64, device="npu")
    for row in found:
        row.random_()
    return found.cpu()


def test_launches_far_apart_have_no_numbers_in_common():
    # A state that followed from 32 bits was the same in these two.
    one, other = (draws(1, 1000, offset)[0] for offset in (33_351, 61_137))

    assert not torch.isin(one, other).any()


def test_no_launch_repeats_another():
    count = 100_000
    found = draws(count, 2)

    assert len(found[:, 0].unique()) == len(found[:, 1].unique()) == count
    # Bits are even in each launch's first numbers, and do not follow from those of the
    # launch before: five standard deviations of a fair coin.
    bits = (found[:, :1] >> torch.arange(63)) & 1
    changed = bits[1:] ^ bits[:-1]
    for share in (bits.double().mean(0), changed.double().mean(0)):
        assert (share - 0.5).abs().max().item() < 2.5 / count**0.5


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


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.nightly) for name in ORDERS],
)
def drawn(request: pytest.FixtureRequest) -> Tensor:
    return words(LAUNCHES, NUMBERS, ORDERS[request.param])


def is_uniform(values: Tensor, kinds: int) -> bool:
    """Whether the chi-square statistic of values in [0, kinds) is an ordinary one."""
    counts = torch.bincount(values.flatten(), minlength=kinds).double()
    expected = values.numel() / kinds
    statistic = ((counts - expected) ** 2 / expected).sum().item()
    freedom = kinds - 1
    return abs(statistic - freedom) < SIGMAS * math.sqrt(2 * freedom)


@pytest.mark.nightly
def test_no_launch_of_a_million_repeats_another():
    first = words(1_000_000, 2, None)
    assert len(torch.unique(first, dim=0)) == len(first)


@pytest.mark.parametrize("shift", [0, 8, 16, 24])
def test_bytes_are_uniform(drawn, shift):
    assert is_uniform(drawn >> shift & 0xFF, 256)


@pytest.mark.parametrize("apart", [1, 2, 7, 64, 4096])
def test_pairs_of_launches_are_uniform(drawn, apart):
    for shift in range(0, 32, 4):
        nibbles = drawn >> shift & 0xF
        assert is_uniform(nibbles[:-apart] * 16 + nibbles[apart:], 256)


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
