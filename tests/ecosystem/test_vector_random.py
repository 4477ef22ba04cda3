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


@pytest.mark.parametrize("size", [1, 17, SIZE])
def test_normal_numbers_are_those_of_pairs_of_words(size: int):
    found = draws(2**40 + 3, lambda: torch.empty(size, device=NPU).normal_(1, 2))

    drawn = torch.tensor(words(2**40 + 3, 4, 1024), dtype=torch.float64)
    distance, direction = drawn.reshape(-1, 2, 16).unbind(1)
    r = ((distance + 0.5) / 2**32).log().mul(-2).sqrt()
    angle = direction * (torch.pi / 2**31)
    pairs = torch.stack([r * angle.cos(), r * angle.sin()], 1).flatten()
    torch.testing.assert_close(
        found.cpu().double(), pairs[:size] * 2 + 1, rtol=1e-5, atol=2e-6
    )


def test_normal_numbers_have_the_moments_and_tails_of_their_distribution():
    n = 1 << 20
    x = draws(7, lambda: torch.randn(n, device=NPU)).cpu().double()

    # Of the mean, the variance, the fourth moment and the number beyond 3, within
    # five standard deviations of each.
    assert x.mean().abs() < 5 / n**0.5
    assert (x.square().mean() - 1).abs() < 5 * (2 / n) ** 0.5
    assert (x.pow(4).mean() - 3).abs() < 5 * (96 / n) ** 0.5
    beyond = 0.0026998
    assert ((x.abs() > 3).double().mean() - beyond).abs() < 5 * (beyond / n) ** 0.5
    assert 4.3 < x.abs().max() < 6.8
    # Neighbours, those of a pair and those of one counter are independent.
    for apart in (1, 16, 32):
        assert (x[apart:] * x[:-apart]).mean().abs() < 5 / n**0.5


def test_a_spread_of_zero_gives_the_mean_and_a_negative_one_is_refused():
    found = draws(3, lambda: torch.empty(SIZE, device=NPU).normal_(2.5, 0))
    assert torch.equal(found.cpu(), torch.full((SIZE,), 2.5))

    with pytest.raises(RuntimeError, match="std >= 0"):
        torch.empty(SIZE, device=NPU).normal_(0, -1)


def test_a_graph_draws_the_normal_numbers_that_its_launches_would():
    out = torch.empty(SIZE, device=NPU)

    def three() -> list[list[float]]:
        return [out.normal_().tolist() for _ in range(3)]

    launched = draws(3, three)
    graph = torch.npu.NPUGraph()
    out.normal_()
    with torch.npu.graph(graph):
        out.normal_()

    def replayed() -> list[list[float]]:
        found = []
        for _ in range(3):
            graph.replay()
            found.append(out.tolist())
        return found

    assert draws(3, replayed) == launched


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


# The larger one is run in pieces.
@pytest.mark.parametrize("size", [SIZE, 400_011])
def test_its_gradient_passes_what_was_kept(size: int):
    x = torch.ones(size, device=NPU, requires_grad=True)

    out = draws(3, lambda: F.dropout(x, 1 - KEEP))
    out.sum().backward()

    assert torch.equal(x.grad, out.detach())
    assert 0.65 < (out != 0).float().mean().item() < 0.75


@pytest.mark.parametrize("shape", [(SIZE,), (3, 70_001), (300, 2, 500)], ids=str)
def test_the_product_with_a_mask_has_cpus_bits_however_tensors_lie(shape):
    seed = torch.Generator().manual_seed(1)
    x, mask = (
        torch.randn(shape, generator=seed),
        torch.rand(shape, generator=seed) < 0.7,
    )
    x.view(-1)[:3] = torch.tensor([torch.nan, torch.inf, -0.0])
    cases = [
        (x, mask),
        (x.mT if x.dim() > 1 else x[::2], mask.mT if x.dim() > 1 else mask[::2]),
        (x.transpose(0, -1).contiguous().transpose(0, -1), mask),
        (x[:1].expand(shape), mask),
        (x.double(), mask),
        (x.bfloat16(), mask),
    ]
    for given, kept in cases:
        wanted = torch.ops.aten.native_dropout_backward(given, kept, 1 / 0.7)
        found = torch.ops.aten.native_dropout_backward(given.npu(), kept.npu(), 1 / 0.7)
        assert found.stride() == wanted.stride()
        torch.testing.assert_close(found.cpu(), wanted, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    "draw",
    [
        lambda on: F.dropout(torch.ones(SIZE, device=on), 0.3),
        lambda on: torch.empty(SIZE, device=on).bernoulli_(0.3),
        lambda on: torch.empty(SIZE, device=on).uniform_(),
        lambda on: torch.randn(SIZE, device=on),
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
