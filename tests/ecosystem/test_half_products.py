"""Products of 16 bits in every layout, in and out of graphs."""

from __future__ import annotations

import pytest
import torch

PRODUCTS = {
    "mm": lambda c, a, b: torch.mm(a, b),
    "addmm": lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2),
    "addmm_": lambda c, a, b: c.clone().addmm_(a, b),
    "bmm": lambda c, a, b: torch.bmm(a.expand(2, -1, -1), b.expand(2, -1, -1)),
    "baddbmm": lambda c, a, b: torch.baddbmm(
        c, a.expand(2, -1, -1), b.expand(2, -1, -1)
    ),
    "matmul": lambda c, a, b: a @ b,
}


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_products(name, first, second, dtype):
    torch.manual_seed(0)
    a = torch.randn(33, 48, dtype=dtype)
    b = torch.randn(48, 17, dtype=dtype)
    c = torch.randn(33, 17, dtype=dtype)
    a = a.t().contiguous().t() if first else a
    b = b.t().contiguous().t() if second else b
    expected = PRODUCTS[name](c.float(), a.float(), b.float()).to(dtype)

    got = PRODUCTS[name](c.npu(), a.npu(), b.npu())

    assert got.dtype == dtype
    within = 2e-3 if dtype == torch.float16 else 2e-2
    torch.testing.assert_close(got.cpu(), expected, rtol=within, atol=within)


def test_a_replay_computes_the_same():
    a, b = (torch.randn(32, 32, dtype=torch.float16).npu() for _ in range(2))
    expected = (a @ b).cpu()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        c = a @ b
    for _ in range(2):
        c.zero_()
        graph.replay()
        assert torch.equal(c.cpu(), expected)
