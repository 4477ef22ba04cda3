"""Arguments that lie where others do: computed or refused as on cpu."""

import pytest
import torch

from npu_dispatch import _C
from tests.ecosystem.both import same

N = 12

# Calls of twelve numbers; `places` are 0, 1, 2, 3.
CALLS = """
x[1:].add_(x[:-1])
x.add_(x)
x.add_(x.view(12))
x[:6].add_(x[6:])
x.view(3, 4)[:, :3].add_(x.view(3, 4)[:, :3].t())
x[1:].copy_(x[:-1])
x.copy_(x.view(12))
x[:6].copy_(x[6:])
x[:1].expand(4).copy_(x[:4])
x[:1].expand(4).copy_(torch.ones(4))
x[:1].expand(4).add_(1)
x[:1].expand(4).fill_(2)
x[:1].expand(4).zero_()
torch.mul(x[1:], 2, out=x[:-1])
torch.mul(x, 2, out=x)
torch.mm(x[:4].view(2, 2), x[4:8].view(2, 2), out=x[2:6].view(2, 2))
torch.mm(x[:4].view(2, 2), x[4:8].view(2, 2), out=x[:4].view(2, 2))
torch.cat([x[:3], x[3:6]], out=x[2:8])
x[:1].expand(4).masked_fill_(torch.ones_like(x[:4]).bool(), 1)
x[:1].expand(4).index_add_(0, places[:1], x[:1])
x[:4].scatter_(0, places[:3], x[1:4])
x[:4].index_copy_(0, places[:3], x[1:4])
x.cumsum_(0)
torch.cumsum(x[1:], 0, out=x[:-1])
torch.sort(x[:4], out=(x[2:6], places.clone()))[0]
x[:4].lerp_(x[1:5], 0.5)
x[:4].addcmul_(x[1:5], x[4:8])
torch.where(x[:4] > 0, x[:4], x[1:5], out=x[2:6])
torch.cat([x[:3], x[3:6]], out=x[:6])
torch.gather(x[:4], 0, places, out=x[2:6])
torch.gather(x[:4], 0, places, out=x[:4])
torch.take(x[:4], places, out=x[2:6])
torch.mul(x[:4].view(4, 1), x[4:8], out=x[:4])
x.view(3, 4)[:, 0].add_(x.view(3, 4)[:, 1])
torch._foreach_add_([x[1:], x[:2]], [x[:-1], x[2:4]])
torch._foreach_add_([x[:4], x[4:8]], [x[8:], x[:4]])
"""


def warmed(x):
    """Make calls of the same shapes, none of which overlap."""
    other = torch.arange(float(4 * N)).to(x.device)[: 2 * N : 2].contiguous()
    torch.add(other[1:], other[:-1])
    other[1:].add_(torch.ones(N - 1, device=x.device))
    other[:4].lerp_(torch.ones(4, device=x.device), 0.5)
    return x


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("call", CALLS.strip().splitlines())
def test_as_on_cpu(call, warm):
    def run(x):
        # Operators on lists return nothing, or the list.
        places = torch.arange(4, device=x.device)
        names = {"x": warmed(x) if warm else x, "torch": torch, "places": places}
        result = eval(call, names)
        return result.clone() if isinstance(result, torch.Tensor) else None, x

    same(run, torch.arange(float(N)), times=2)


LARGE = """
x.mul_(x)
x.mul_(x.view(x.shape))
x[:, ::2].add_(x[:, 1::2])
x[:, 0].sub_(x[:, 1])
x[:200].copy_(x[200:])
x.triu_()
x.addcdiv_(x, x + 1)
torch._foreach_mul_([x[:200], x[200:]], [x[:200], x[:200]])
"""


@pytest.mark.parametrize("call", LARGE.strip().splitlines())
def test_large_ones_are_known_and_do_not_wait(call):
    values = torch.rand(400, 400)
    expected = values.clone()
    x = values.npu()
    for _ in range(2):
        eval(call, {"x": expected, "torch": torch})
        eval(call, {"x": x, "torch": torch})
    before = _C.cold_launches()
    with torch.npu.sync_guard("error"):
        eval(call, {"x": x, "torch": torch})
    eval(call, {"x": expected, "torch": torch})
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
