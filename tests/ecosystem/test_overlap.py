"""Arguments that lie where others do: computed or refused as on cpu."""

from __future__ import annotations

import pytest
import torch

from npu_dispatch import _C
from tests.ecosystem.both import same

N = 12

CALLS = {
    "add_ of the next": lambda x: x[1:].add_(x[:-1]),
    "add_ of itself": lambda x: x.add_(x),
    "add_ of a view of itself": lambda x: x.add_(x.view(N)),
    "add_ of the other half": lambda x: x[: N // 2].add_(x[N // 2 :]),
    "add_ of the transposed": lambda x: x.view(3, 4)[:, :3].add_(
        x.view(3, 4)[:, :3].t()
    ),
    "copy_ of the next": lambda x: x[1:].copy_(x[:-1]),
    "copy_ of itself": lambda x: x.copy_(x.view(N)),
    "copy_ of the other half": lambda x: x[: N // 2].copy_(x[N // 2 :]),
    "copy_ into one element": lambda x: x[:1].expand(4).copy_(x[:4]),
    "copy_ of the host into one element": lambda x: (
        x[:1].expand(4).copy_(torch.ones(4))
    ),
    "add_ into one element": lambda x: x[:1].expand(4).add_(1),
    "fill_ of one element": lambda x: x[:1].expand(4).fill_(2),
    "zero_ of one element": lambda x: x[:1].expand(4).zero_(),
    "mul out": lambda x: torch.mul(x[1:], 2, out=x[:-1]),
    "mul out of itself": lambda x: torch.mul(x, 2, out=x),
    "mm out": lambda x: torch.mm(
        x[:4].view(2, 2), x[4:8].view(2, 2), out=x[2:6].view(2, 2)
    ),
    "mm out of itself": lambda x: torch.mm(
        x[:4].view(2, 2), x[4:8].view(2, 2), out=x[:4].view(2, 2)
    ),
    "cat out": lambda x: torch.cat([x[:3], x[3:6]], out=x[2:8]),
    "masked_fill_": lambda x: (
        x[:1].expand(4).masked_fill_(torch.ones_like(x[:4]).bool(), 1)
    ),
    "index_add_": lambda x: (
        x[:1].expand(4).index_add_(0, torch.tensor([0], device=x.device), x[:1])
    ),
    "scatter_": lambda x: x[:4].scatter_(0, torch.arange(3, device=x.device), x[1:4]),
    "index_copy_": lambda x: x[:4].index_copy_(
        0, torch.arange(3, device=x.device), x[1:4]
    ),
    "cumsum_": lambda x: x.cumsum_(0),
    "cumsum out": lambda x: torch.cumsum(x[1:], 0, out=x[:-1]),
    "sort out": lambda x: torch.sort(
        x[:4], out=(x[2:6], torch.empty(4, dtype=torch.long, device=x.device))
    )[0],
    "lerp_": lambda x: x[:4].lerp_(x[1:5], 0.5),
    "addcmul_": lambda x: x[:4].addcmul_(x[1:5], x[4:8]),
    "where out": lambda x: torch.where(x[:4] > 0, x[:4], x[1:5], out=x[2:6]),
    "cat out of itself": lambda x: torch.cat([x[:3], x[3:6]], out=x[:6]),
    "gather out": lambda x: torch.gather(
        x[:4], 0, torch.arange(4, device=x.device), out=x[2:6]
    ),
    "gather out of itself": lambda x: torch.gather(
        x[:4], 0, torch.arange(4, device=x.device), out=x[:4]
    ),
    "take out": lambda x: torch.take(
        x[:4], torch.arange(4, device=x.device), out=x[2:6]
    ),
    "out of another size that is an input": lambda x: torch.mul(
        x[:4].view(4, 1), x[4:8], out=x[:4]
    ),
    "columns": lambda x: x.view(3, 4)[:, 0].add_(x.view(3, 4)[:, 1]),
    "foreach": lambda x: torch._foreach_add_([x[1:], x[:2]], [x[:-1], x[2:4]]),
    "foreach of parts": lambda x: torch._foreach_add_([x[:4], x[4:8]], [x[8:], x[:4]]),
}


def warmed(x):
    """Make calls of the same shapes, none of which overlap."""
    other = torch.arange(float(4 * N)).to(x.device)[: 2 * N : 2].contiguous()
    torch.add(other[1:], other[:-1])
    other[1:].add_(torch.ones(N - 1, device=x.device))
    other[:4].lerp_(torch.ones(4, device=x.device), 0.5)
    return x


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_as_on_cpu(name, warm):
    def call(x):
        # Operators on lists return nothing, or the list.
        result = CALLS[name](warmed(x) if warm else x)
        return result.clone() if isinstance(result, torch.Tensor) else None, x

    same(call, torch.arange(float(N)), times=2)


def test_a_refused_call_leaves_the_stream_usable():
    x = torch.arange(6.0).npu()
    with pytest.raises(RuntimeError, match="single memory location"):
        x[1:].add_(x[:-1])
    assert x.add_(1).tolist() == [1, 2, 3, 4, 5, 6]


LARGE = {
    "mul_ of itself": lambda x: x.mul_(x),
    "mul_ of a view of itself": lambda x: x.mul_(x.view(x.shape)),
    "even columns": lambda x: x[:, ::2].add_(x[:, 1::2]),
    "two columns": lambda x: x[:, 0].sub_(x[:, 1]),
    "rows": lambda x: x[:200].copy_(x[200:]),
    "triu_": lambda x: x.triu_(),
    "addcdiv_ of itself": lambda x: x.addcdiv_(x, x + 1),
    "foreach": lambda x: torch._foreach_mul_([x[:200], x[200:]], [x[:200], x[:200]]),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_ones_are_known_and_do_not_wait(name):
    values = torch.rand(400, 400)
    expected = values.clone()
    x = values.npu()
    for _ in range(2):
        LARGE[name](expected)
        LARGE[name](x)
    before = _C.cold_launches()
    torch.npu.set_sync_debug_mode("error")
    try:
        LARGE[name](x)
    finally:
        torch.npu.set_sync_debug_mode("default")
    LARGE[name](expected)
    assert _C.cold_launches() == before
    assert torch.equal(x.cpu(), expected)


def test_large_ones_are_refused_as_small_ones_are():
    for n in (4, 100_000, 4):
        x = torch.ones(n, device="npu")
        x[:-1].add_(torch.ones(n - 1, device="npu"))
        for call in (
            lambda x=x: x[1:].add_(x[:-1]),
            lambda x=x: x[1:].clamp_min_(x[:-1]),
            lambda x=x: torch.exp(x[1:], out=x[:-1]),
            lambda x=x: x[:1].expand(x.shape).mul_(2),
        ):
            with pytest.raises(RuntimeError, match="single memory location"):
                call()


IN_PLACE = {
    **{
        name: lambda a, b, name=name: getattr(a, name)(b)
        for name in ("logical_and_", "logical_or_", "logical_xor_", "ldexp_", "add_")
    },
    "copysign_": lambda a, b: a.copysign_(b),
    "addr_": lambda a, b: a.addr_(b[0], b[0]),
    "addbmm_": lambda a, b: a.addbmm_(b.expand(2, 3, 3), b.expand(2, 3, 3)),
    "addmm_": lambda a, b: a.addmm_(b, b),
    "addcmul_": lambda a, b: a.addcmul_(b, b),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_what_does_not_fit_in_place_is_treated_as_on_cpu(name):
    def call(a, b):
        try:
            return IN_PLACE[name](a, b)
        except RuntimeError:
            assert a.tolist() == [[1, 1, 1]]
            raise

    same(call, torch.ones(1, 3), torch.ones(3, 3), times=2)
