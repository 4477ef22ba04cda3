"""Sparse gradients: all_reduce of sparse tensors, and DDP, as gloo on cpu."""

from __future__ import annotations

SUMS = """
join("hccl")
gloo = dist.new_group(backend="gloo")
def part(r, dtype):
    if r == 1:  # one that is empty, where there are more
        return torch.sparse_coo_tensor(torch.zeros(1, 0), torch.zeros(0, 3), (6, 3),
                                       dtype=dtype)
    rows = torch.tensor([[4, r, 4]])  # one row twice
    return torch.sparse_coo_tensor(rows, torch.arange(9.).view(3, 3) + r, (6, 3),
                                   dtype=dtype)
def scalars(r, dtype):
    at = torch.tensor([[0, 1], [r % 2, 1]])
    return torch.sparse_coo_tensor(at, torch.tensor([1., r + 2]), (2, 2), dtype=dtype)
for make in (part, scalars):
    for dtype in (torch.float32, torch.float64, torch.int64):
        for asynchronous in (False, True):
            wanted, got = make(rank, dtype), make(rank, dtype).npu()
            dist.all_reduce(wanted, group=gloo)
            work = dist.all_reduce(got, async_op=asynchronous)
            if asynchronous: work.wait()
            assert got.is_sparse and got.device.type == "npu"
            assert torch.equal(got.cpu().to_dense(), wanted.to_dense()), (got, wanted)
            assert got._nnz() == wanted._nnz()
future = dist.all_reduce(part(rank, torch.float32).npu(), async_op=True).get_future()
total = sum(part(r, torch.float32).to_dense() for r in range(size))
assert torch.equal(future.wait()[0].cpu().to_dense(), total)
bf16 = part(rank, torch.bfloat16).npu()
dist.all_reduce(bf16)
assert torch.equal(bf16.cpu().to_dense(), total.bfloat16())
raises(Exception, "SUM", dist.all_reduce, part(rank, torch.float32).npu(),
       dist.ReduceOp.MAX)
raises(Exception, "parse", dist.all_reduce, torch.eye(3).npu().to_sparse_csr())
dist.all_reduce(torch.ones(1).npu())
"""


def test_the_sum_of_sparse_tensors_is_that_of_gloo(ranks):
    ranks(SUMS, 4)
    ranks(
        SUMS.replace(
            'gloo = dist.new_group(backend="gloo")',
            'gloo = dist.new_group([0], backend="gloo")',
        ),
        1,
    )
