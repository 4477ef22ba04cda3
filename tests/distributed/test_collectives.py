"""Collectives give what the definition of the collective says, on 2 and 4 ranks."""

from __future__ import annotations

import pytest
from ranks import WAYS

COLLECTIVES = """
join()
assert dist.get_backend() == "hccl"
n = size
def part(r, k=5, dtype=torch.float32):
    return torch.arange(k, dtype=torch.float32).add(10 * r + 1).to(dtype)
def same(got, wanted):
    assert got.device.type == "npu" and torch.equal(got.cpu(), wanted), (got, wanted)

# Inside the frame, the most of it (768 bytes), in one exchange, in two.
for k in (1, 5, 192, 1000, 70001):
    t = part(rank, k).npu()
    assert dist.all_reduce(t) is None
    same(t, sum(part(r, k) for r in range(n)))
    t = part(rank, k).npu()
    dist.broadcast(t, n - 1)
    same(t, part(n - 1, k))
    t = part(rank, k).npu()
    dist.reduce(t, 1)
    same(t, sum(part(r, k) for r in range(n)) if rank == 1 else part(rank, k))
    out = [torch.empty(k).npu() for _ in range(n)]
    dist.all_gather(out, part(rank, k).npu())
    for r in range(n): same(out[r], part(r, k))
    out = torch.empty(n * k).npu()
    dist.all_gather_into_tensor(out, part(rank, k).npu())
    same(out, torch.cat([part(r, k) for r in range(n)]))
    out = torch.empty(k).npu()
    full = torch.cat([part(rank, k) + r for r in range(n)])
    dist.reduce_scatter_tensor(out, full.npu())
    same(out, sum(part(r, k) + rank for r in range(n)))
    dist.reduce_scatter(out, [p.npu() for p in full.chunk(n)])
    same(out, sum(part(r, k) + rank for r in range(n)))
    got = [torch.empty(k).npu() for _ in range(n)] if rank == 0 else None
    dist.gather(part(rank, k).npu(), got, 0)
    if rank == 0:
        for r in range(n): same(got[r], part(r, k))
    out = torch.empty(k).npu()
    dist.scatter(out, [part(r, k).npu() for r in range(n)] if rank == 1 else None, 1)
    same(out, part(rank, k))
    out = [torch.empty(k).npu() for _ in range(n)]
    dist.all_to_all(out, [(part(rank, k) + 100 * r).npu() for r in range(n)])
    for r in range(n): same(out[r], part(r, k) + 100 * rank)
    out = [[torch.empty(k).npu(), torch.empty(2, k).npu()] for _ in range(n)]
    two = [part(rank, k).npu(), part(rank, 2 * k).view(2, k).npu()]
    dist.all_gather_coalesced(out, two)
    for r in range(n):
        same(out[r][0], part(r, k))
        same(out[r][1], part(r, 2 * k).view(2, k))
    if n > 1:
        t = part(rank, k).npu() if rank == 0 else torch.empty(k).npu()
        dist.send(t, 1) if rank == 0 else rank == 1 and dist.recv(t, 0)
        if rank < 2: same(t, part(0, k))

# Uneven: rank r has r + 1 elements, and sends r + 1 rows to each.
out = [torch.empty(r + 1).npu() for r in range(n)]
dist.all_gather(out, part(rank, rank + 1).npu())
for r in range(n): same(out[r], part(r, r + 1))
sends, gets = [rank + 1] * n, [r + 1 for r in range(n)]
out = torch.empty(sum(gets), 3).npu()
rows = torch.full((sum(sends), 3), float(rank))
dist.all_to_all_single(out, rows.npu(), gets, sends)
same(out, torch.cat([torch.full((r + 1, 3), float(r)) for r in range(n)]))
dist.all_reduce(torch.empty(0).npu())

dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("size", [1, 2, 4])
def test_each_collective_gives_what_it_is_defined_as(ranks, size: int):
    code = (
        COLLECTIVES
        if size > 1
        else COLLECTIVES.replace("dist.reduce(t, 1)", "dist.reduce(t, 0)")
        .replace("if rank == 1 else None, 1)", ", 0)")
        .replace("rank == 1", "rank == 0")
    )

    ranks(code, size)


# Where one rank has no links, all that it exchanges goes by sockets.
@pytest.mark.parametrize(
    "way", ["both", pytest.param("sockets", marks=pytest.mark.nightly)]
)
def test_collectives_are_the_same_where_ranks_have_no_links(ranks, way: str):
    ranks(WAYS[way] + COLLECTIVES, 4)


# Of many segments, more than are held at a time, the last one shorter.
LARGE = """
join()
n, k = size, 3_000_001
def part(r, k, dtype=torch.float32):
    return torch.arange(k).remainder(251).add(r).to(dtype)
def total(k, dtype=torch.float32):
    return sum(part(r, k) for r in range(n)).to(dtype)
tensors = [part(rank, k).npu() for _ in range(3)]
works = [dist.all_reduce(t, async_op=True) for t in tensors]
for work, t in zip(works, tensors):
    work.wait()
    assert torch.equal(t.cpu(), total(k))
t = part(rank, k, torch.bfloat16).npu()
dist.all_reduce(t, dist.ReduceOp.MAX)
assert torch.equal(t.cpu(), part(n - 1, k, torch.bfloat16))
t = part(rank, k).npu()
dist.all_reduce(t, dist._make_nccl_premul_sum(2.0))
assert torch.equal(t.cpu(), 2 * total(k))
for whole in (n << 18, 4 * n << 18):  # one segment of each rank's, and all held
    t = part(rank, whole).npu()
    dist.all_reduce(t)
    assert torch.equal(t.cpu(), total(whole))

full = torch.cat([part(rank, k) + r for r in range(n)])
out = torch.empty(k).npu()
dist.reduce_scatter_tensor(out, full.npu())
assert torch.equal(out.cpu(), total(k) + n * rank)
inputs = full.npu()
mine = inputs[rank * k:(rank + 1) * k]  # in place
dist.reduce_scatter_tensor(mine, inputs)
assert torch.equal(mine.cpu(), total(k) + n * rank)
sizes = [k, 10, 0, 400_000][:n]
out = torch.empty(sizes[rank]).npu()
dist.reduce_scatter(out, [part(rank, s).npu() for s in sizes])
assert torch.equal(out.cpu(), total(sizes[rank]))
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    ("size", "way"),
    [
        (2, "links"),
        (3, "both"),
        pytest.param(4, "links", marks=pytest.mark.nightly),
    ],
)
def test_what_is_reduced_in_many_segments_is_all_there(ranks, size: int, way: str):
    ranks(WAYS[way] + LARGE, size)


FACTS = """
join("hccl")
@fact
def every_dtype_is_moved_and_reduced():
    numbers = [torch.float16, torch.bfloat16, torch.float32, torch.float64,
               torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64,
               torch.complex64, torch.complex128, torch.float8_e4m3fn,
               torch.float8_e5m2]
    for dtype in numbers + [torch.uint16, torch.uint32, torch.uint64]:
        mine, other = (
            torch.tensor([r + 1, 2, 3]).to(dtype) for r in (rank, 1 - rank))
        out = [torch.empty(3, dtype=dtype).npu() for _ in range(2)]
        dist.all_gather(out, mine.npu())
        for got, sent in ((out[rank], mine), (out[1 - rank], other)):
            assert got.cpu().tolist() == sent.tolist(), dtype
        t = mine.npu()
        dist.all_reduce(t)
        wanted = torch.tensor([3, 4, 6]).to(dtype)
        assert t.cpu().tolist() == wanted.tolist(), (dtype, t)
        if dtype.is_floating_point:
            t = mine.npu()
            dist.all_reduce(t, dist._make_nccl_premul_sum(0.5))
            wanted = torch.tensor([1.5, 2, 3]).to(dtype)
            assert t.cpu().tolist() == wanted.tolist(), (dtype, t)
@fact
def every_reduction_is_that_of_the_elements():
    Op = dist.ReduceOp
    a, b = torch.tensor([6., -3., 5.]), torch.tensor([2., 8., 5.])
    mine = a if rank == 0 else b
    def reduced(t, op):
        t = t.clone().npu()
        dist.all_reduce(t, op)
        return t.cpu()
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int64):
        x, y = a.to(dtype), b.to(dtype)
        m = mine.to(dtype)
        assert torch.equal(reduced(m, Op.SUM), x + y)
        assert torch.equal(reduced(m, Op.PRODUCT), x * y)
        assert torch.equal(reduced(m, Op.MIN), torch.minimum(x, y))
        assert torch.equal(reduced(m, Op.MAX), torch.maximum(x, y))
        assert torch.equal(reduced(m, Op.AVG),
                           torch.tensor([4., 2.5, 5.]).to(dtype))
    assert torch.equal(reduced(mine, dist._make_nccl_premul_sum(0.5)), (a + b) / 2)
    x, y, m = a.long(), b.long(), mine.long()
    assert torch.equal(reduced(m, Op.BAND), x & y)
    assert torch.equal(reduced(m, Op.BOR), x | y)
    assert torch.equal(reduced(m, Op.BXOR), x ^ y)
    x, y = torch.tensor([True, True, False]), torch.tensor([True, False, False])
    m = x if rank == 0 else y
    for op, wanted in ((Op.SUM, x | y), (Op.MAX, x | y), (Op.PRODUCT, x & y),
                       (Op.MIN, x & y), (Op.BXOR, x ^ y)):
        got = reduced(m, op)
        # Gloo stores a 2 where both are true.
        assert torch.equal(got.view(torch.uint8), wanted.view(torch.uint8)), op
    # The input of a reduce_scatter stays as it was.
    full, out = torch.ones(4).npu(), torch.empty(2).npu()
    dist.reduce_scatter_tensor(out, full, dist._make_nccl_premul_sum(0.5))
    assert out.tolist() == [1, 1] and full.tolist() == [1] * 4
@fact
def objects_go_from_and_to_every_rank():
    n = size
    got = [None] * n
    dist.all_gather_object(got, {"rank": rank, "of any size": "x" * 1000 * rank})
    assert [len(g["of any size"]) for g in got] == [1000 * r for r in range(n)]
    got = [None] * n if rank == 1 else None
    dist.gather_object(("from", rank), got, 1)
    assert rank != 1 or got == [("from", r) for r in range(n)]
    mine = [None]
    dist.scatter_object_list(
        mine, [f"to {r}" for r in range(n)] if rank == 0 else None, 0)
    assert mine == [f"to {rank}"]
    values = [rank, {"k": (1, 2)}] if rank == 1 else [None, None]
    dist.broadcast_object_list(values, 1)
    assert values == [1, {"k": (1, 2)}]
    if rank == 0:
        dist.send_object_list([1, "b"], 1)
    else:
        values = [None, None]
        assert dist.recv_object_list(values, 0) == 0 and values == [1, "b"]
    tensors = [None] * n
    dist.all_gather_object(tensors, torch.full((2,), float(rank)).npu())
    for r, t in enumerate(tensors):
        assert t.device.type == "npu" and t.tolist() == [r, r]
@fact
def wrong_arguments_are_refused_at_the_call_and_harm_nothing():
    square = torch.arange(6.).reshape(2, 3).npu()
    raises(ValueError, "contiguous", dist.all_reduce, square.t())
    raises(ValueError, "contiguous", dist.broadcast, square[:, 1], 0)
    emptied = square.clone()
    emptied.untyped_storage().resize_(0)
    raises(RuntimeError, "all_reduce: a tensor needs", dist.all_reduce, emptied)
    raises(TypeError, "no average", dist.all_reduce,
            torch.tensor([True]).npu(), dist.ReduceOp.AVG)
    raises(TypeError, "bits", dist.all_reduce, square, dist.ReduceOp.BAND)
    unsigned = torch.ones(2).to(torch.uint16).npu()
    for op in (dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.AVG):
        raises(TypeError, "signed", dist.all_reduce, unsigned, op)
    raises(TypeError, "bits", dist.reduce_scatter_tensor,
            torch.empty(3).npu(), square, dist.ReduceOp.BAND)
    raises(ValueError, "elements", dist.all_gather_into_tensor,
            torch.empty(5).npu(), square)
    raises(TypeError, "Int", dist.all_gather_into_tensor,
            torch.empty(4, 3).int().npu(), square)
    raises(ValueError, "lists", dist.group.WORLD.allgather_coalesced,
            [[torch.empty(3).npu()]], [square])
    # The root's own entry, which no other rank sees.
    three, four = torch.ones(3).npu(), torch.ones(4).npu()
    world = dist.group.WORLD
    gathering, scattering = dist.GatherOptions(), dist.ScatterOptions()
    gathering.rootRank = scattering.rootRank = rank
    raises(ValueError, "4 elements", world.gather,
            [[four, four]], [three], gathering)
    raises(ValueError, "4 elements", world.scatter,
            [three], [[four, four]], scattering)
    dist.all_reduce(square)  # both ranks are still in step
    assert square.cpu().tolist() == [[0, 2, 4], [6, 8, 10]]
"""


def test_dtypes_reductions_objects_and_wrong_arguments(ranks):
    ranks(FACTS)
