"""Random numbers that are drawn with vector instructions: which, and in what order."""

import pytest
import torch
import torch.nn.functional as F

NPU = torch.device("npu")
SIZE = 1000  # no multiple of what is drawn at once
KEEP = 0.7


def philox(seed: int, offset: int, counter: int) -> list[int]:
    """Return the four words of Philox 4x32-10, as its authors define it."""
    low = 0xFFFFFFFF
    x = [counter & low, counter >> 32, offset & low, offset >> 32]
    key = [seed & low, seed >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [(b >> 32) ^ x[1] ^ key[0], b & low, (a >> 32) ^ x[3] ^ key[1], a & low]
        key = [(key[0] + 0x9E3779B9) & low, (key[1] + 0xBB67AE85) & low]
    return x


def words(seed: int, offset: int, n: int) -> list[int]:
    """Return the first n words: of 16 counters the first words, then the second."""
    found: list[int] = []
    for group in range(-(-n // 64)):
        counters = [philox(seed, offset, 16 * group + c) for c in range(16)]
        found += [counter[word] for word in range(4) for counter in counters]
    return found[:n]


def draws(seed: int, draw, *, skip: int = 1) -> object:
    """Return what the next draw gives after `skip` others of that seed."""
    torch.npu.manual_seed(seed)
    for _ in range(skip):
        torch.rand(1, device=NPU)
    return draw()


def test_the_reference_gives_the_authors_numbers():
    # The known answers of Random123 for counter and key 0.
    assert philox(0, 0, 0) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


@pytest.mark.parametrize("seed", [3, 2**40 + 3])
def test_numbers_are_those_of_seed_offset_and_place(seed: int):
    found = draws(seed, lambda: torch.empty(SIZE, device=NPU).uniform_(2, 5))

    expected = [(w >> 8) * 2**-24 for w in words(seed, 4, SIZE)]
    torch.testing.assert_close(
        found.cpu(), torch.tensor(expected) * 3 + 2, rtol=0, atol=5e-7
    )


def test_the_upper_end_is_never_drawn():
    high = 1 + 2**-23  # the next float after 1: half of the sums are rounded up to it

    found = draws(3, lambda: torch.empty(SIZE, device=NPU).uniform_(1, high))

    assert found.min().item() == found.max().item() == 1.0


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
def test_bernoulli_compares_the_same_numbers(dtype: torch.dtype):
    out = torch.empty(SIZE, dtype=dtype, device=NPU)

    found = draws(3, lambda: out.bernoulli_(KEEP))

    expected = torch.tensor([w < KEEP * 2**32 for w in words(3, 4, SIZE)])
    assert torch.equal(found.cpu(), expected.to(dtype))


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16]
)
@pytest.mark.parametrize("transposed", [False, True])
def test_dropout_is_a_mask_and_a_scale(dtype: torch.dtype, transposed: bool):
    x = torch.linspace(-3, 3, SIZE).reshape(20, 50).to(dtype)
    x[0, :3] = torch.tensor([torch.nan, torch.inf, -torch.inf])
    given = x.npu().t() if transposed else x.npu()

    out, mask = draws(3, lambda: torch.native_dropout(given, 1 - KEEP, True))

    assert (out.dtype, mask.dtype) == (dtype, torch.bool)
    assert out.stride() == mask.stride() == given.stride()
    expected = (given.cpu() * mask.cpu()).mul_(1 / (1 - (1 - KEEP)))
    torch.testing.assert_close(out.cpu(), expected, equal_nan=True)
    flat = (mask.t() if transposed else mask).cpu().flatten()
    assert flat.tolist() == [w < KEEP * 2**32 for w in words(3, 4, SIZE)]


def test_its_gradient_passes_what_was_kept():
    x = torch.ones(SIZE, device=NPU, requires_grad=True)

    out = draws(3, lambda: F.dropout(x, 1 - KEEP))
    out.sum().backward()

    assert torch.equal(x.grad, out.detach())
    assert 0.65 < (out != 0).float().mean().item() < 0.75


@pytest.mark.parametrize(
    "draw",
    [
        lambda on: F.dropout(torch.ones(SIZE, device=on), 0.3),
        lambda on: torch.empty(SIZE, device=on).bernoulli_(0.3),
        lambda on: torch.empty(SIZE, device=on).uniform_(),
    ],
)
def test_the_first_draw_of_a_seed_is_cpus(draw):
    torch.manual_seed(5)
    expected = draw("cpu")

    assert torch.equal(draws(5, lambda: draw(NPU), skip=0).cpu(), expected)


def test_tensors_with_gaps_and_small_types_are_drawn_too():
    wide = torch.zeros(SIZE, 2, device=NPU)
    few = torch.empty(SIZE, dtype=torch.int8, device=NPU)

    draws(3, lambda: (wide[:, 0].bernoulli_(KEEP), few.bernoulli_(KEEP)))

    assert 0.6 < wide[:, 0].mean().item() < 0.8
    assert wide[:, 1].sum().item() == 0
    assert 0.6 < few.float().mean().item() < 0.8
