"""Products that are computed in pieces, by whichever threads have a core."""

from __future__ import annotations

import pytest
import torch

# Rows, what is summed over, columns; from 8 to 84 million multiplications.
SIZES = [
    (200, 200, 200),
    (256, 256, 256),
    (130, 784, 400),
    (63, 4096, 33),
    (31, 900, 3000),
]


def matrix(rows: int, columns: int, turned: bool, dtype: torch.dtype) -> torch.Tensor:
    numbers = torch.arange(rows * columns).remainder(17).sub(8).to(dtype)
    return numbers.view(columns, rows).t() if turned else numbers.view(rows, columns)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_each_form_is_the_product(size, turned, dtype):
    # Of small integers, so that each order of additions gives the same.
    rows, between, columns = size
    a = matrix(rows, between, turned[0], dtype)
    b = matrix(between, columns, turned[1], dtype)
    row, full = matrix(1, columns, False, dtype), matrix(rows, columns, False, dtype)
    calls = [
        torch.mm,
        lambda a, b: torch.addmm(row.to(a.device), a, b, beta=2, alpha=-1),
        lambda a, b: torch.addmm(row[0].to(a.device), a, b),
        lambda a, b: torch.addmm(row[0, 0].to(a.device), a, b),
        lambda a, b: full.to(a.device).clone().addmm_(a, b, alpha=3),
        lambda a, b: torch.mm(a, b, out=full.to(a.device).t().contiguous().t()),
        lambda a, b: torch.mm(a, b, out=full.to(a.device)[:0]),
    ]

    for call in calls:
        assert torch.equal(call(a.npu(), b.npu()).cpu(), call(a, b))


@pytest.mark.parametrize("batch", [2, 3, 16])
def test_each_form_of_a_batch_is_the_products(batch):
    a = torch.stack([matrix(160, 160, k % 2 == 0, torch.float32) for k in range(batch)])
    c = a.mT.contiguous()
    calls = [
        torch.bmm,
        lambda a, b: torch.baddbmm(c.to(a.device), a, b, beta=0.5, alpha=2),
        lambda a, b: torch.baddbmm(c[0, 0].to(a.device), a, b),
        lambda a, b: c.to(a.device).clone().baddbmm_(a, b),
    ]

    for call in calls:
        assert torch.equal(call(a.npu(), a.npu()).cpu(), call(a, a))


def test_what_is_no_number_stays_where_it_is():
    a, b = torch.ones(300, 300), torch.ones(300, 300)
    a[7], b[:, 9] = torch.nan, torch.inf

    torch.testing.assert_close(
        (a.npu() @ b.npu()).cpu(), a @ b, equal_nan=True, rtol=0, atol=0
    )


def test_every_piece_flushes_denormal_numbers_if_the_caller_does(python):
    done = python.run(
        "-c",
        """
import torch
# cpu flushes in the caller's part of a product only, so it is no judge here. The
# bits are counted, since a comparison may flush, too.
a, b = torch.full((300, 300), 1e-39).npu(), torch.eye(300).npu()
count = lambda: (a @ b).view(torch.int32).count_nonzero()
assert count() == 300 * 300
if torch.set_flush_denormal(True):
    for _ in range(20):
        assert count() == 0
    torch.set_flush_denormal(False)
    assert count() == 300 * 300
""",
    )
    assert done.returncode == 0, done.stderr
