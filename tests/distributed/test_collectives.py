"""Collectives give what the definition says: of all types, layouts and groups."""

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
    [(2, "links"), (3, "both"), pytest.param(4, "links", marks=pytest.mark.nightly)],
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


TABLE = """
S, n = (2, 3, 2, 2), size
LAST, FIRST = torch.channels_last, torch.contiguous_format
def value(r, k=0):
    return torch.arange(24.).view(S) + 100 * r + 1000 * k
def made(t, form, device):
    return t.to(device).to(memory_format=form)
def room(rows, form, device):
    return made(torch.zeros(rows * 2, 3, 2, 2), form, device)
def rooms(form, device):
    return [room(1, form, device) for _ in range(n)]
def parts(form, device):
    return [made(value(rank, r), form, device) for r in range(n)]
def whole(form, device):
    return made(torch.cat([value(rank, r) for r in range(n)]), form, device)
# Each fills `out`, what is made of rooms, with what `mine` gives.
ALONE = lambda form, device: made(value(rank), form, device)
OF_ALL = lambda form, device: room(n, form, device)
ONE = lambda form, device: room(1, form, device)
AT_ROOT = lambda make: lambda *of: make(*of) if rank == 0 else None
TO_ALL = lambda form, device: [made(value(r), form, device) for r in range(n)]
CALLS = {
    "all_gather": (dist.all_gather, rooms, ALONE),
    "all_gather_into_tensor": (dist.all_gather_into_tensor, OF_ALL, ALONE),
    "gather": (lambda out, mine, group: dist.gather(mine, out, 0, group),
               AT_ROOT(rooms), ALONE),
    "scatter": (lambda out, mine, group: dist.scatter(out, mine, 0, group),
                ONE, AT_ROOT(TO_ALL)),
    "reduce_scatter": (dist.reduce_scatter, ONE, parts),
    "reduce_scatter_tensor": (dist.reduce_scatter_tensor, ONE, whole),
    "all_to_all": (dist.all_to_all, rooms, parts),
    "all_to_all_single": (dist.all_to_all_single, OF_ALL, whole),
}
def called(name, i, o, device, group):
    call, room_of, mine_of = CALLS[name]
    out = room_of(o, device)
    call(out, mine_of(i, device), group=group)
    return out if isinstance(out, list) else [] if out is None else [out]
"""


FORMATS = """
join("hccl", seconds=30)
gloo = dist.new_group(backend="gloo")
@fact
def inputs_and_outputs_may_have_different_formats():
    # Gloo permutes without a word in three of the calls, where formats differ:
    # there it judges with contiguous tensors.
    for name in CALLS:
        for i in (FIRST, LAST):
            for o in (FIRST, LAST):
                wanted = called(name, FIRST, FIRST, "cpu", gloo)
                for device in ("npu:0", "npu:1"):
                    got = called(name, i, o, device, None)
                    assert len(got) == len(wanted)
                    for a, b in zip(got, wanted):
                        assert torch.equal(a.cpu(), b), (name, i, o, device)
                if name not in ("scatter", "reduce_scatter", "all_to_all_single"):
                    for a, b in zip(called(name, i, o, "cpu", gloo), wanted):
                        assert torch.equal(a, b), (name, i, o)
@fact
def what_has_one_order_in_both_formats_agrees_with_both():
    for shape in ((2, 1, 3, 3), (2, 3, 1, 1), (0, 3, 2, 2)):
        form = LAST if rank == 0 else FIRST
        t = torch.ones(shape).npu().to(memory_format=form)
        dist.all_reduce(t)
        assert t.eq(2).all()
    t = torch.arange(24.).view(2, 3, 2, 2).npu()
    t = t.to(memory_format=LAST)
    for f in (dist.all_reduce, lambda t: dist.broadcast(t, 1)):
        f(t)
        assert t.is_contiguous(memory_format=LAST)
    assert torch.equal(t.cpu(), 2 * torch.arange(24.).view(2, 3, 2, 2))
    volume = torch.arange(48.).view(1, 3, 2, 2, 4).npu()
    volume = volume.to(memory_format=torch.channels_last_3d)
    out = [torch.zeros(1, 3, 2, 2, 4).npu() for _ in range(2)]
    dist.all_gather(out, volume)
    assert all(torch.equal(o.cpu(), volume.cpu()) for o in out)
"""


def test_formats_are_kept_and_may_differ_within_a_rank(ranks):
    """Between ranks they may not: test_errors.py."""
    ranks(TABLE + FORMATS, NPU_DISPATCH_DEVICES="2")


GRADIENTS = """
from torch.distributed.nn import functional
join("hccl")
def loss(t):  # row i has the gradient i + 1, in the strides of a transposed tensor
    return (t.t() * torch.arange(1.0, len(t) + 1).npu()).sum()
x = torch.ones(2, 3).npu().requires_grad_()
sum(map(loss, functional.all_gather(x))).backward()
assert x.grad.tolist() == [[size * 1.0] * 3, [size * 2.0] * 3], x.grad
x.grad = None
loss(functional._all_gather_base(torch.empty(2 * size, 3).npu(), x)).backward()
first = 2 * rank + 1.0
assert x.grad.tolist() == [[size * first] * 3, [size * (first + 1)] * 3], x.grad
"""


def test_gradients_of_gathered_tensors_may_have_any_strides(ranks):
    ranks(GRADIENTS)


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
    ranks(SUMS.replace("new_group(", "new_group([0], "), 1)


@pytest.mark.parametrize("backend", ["hccl", "cpu:gloo,npu:hccl"])
def test_a_bound_group_is_split_and_makes_a_mesh(ranks, backend: str):
    ranks(
        """
        from torch.distributed.device_mesh import init_device_mesh
        join(BACKEND, device_id=torch.device("npu:0"))
        def total(group, on="npu"):
            t = torch.tensor([float(rank)]).to(on)
            dist.all_reduce(t, group=group)
            return t.item()
        filtered = {} if dist.get_backend() == "hccl" else {"backend": "npu:hccl"}
        for parts in ([[0, 2], [1, 3]], [[0, 1, 2, 3]], [[0], [1], [2], [3]]):
            mine = next(part for part in parts if rank in part)
            group = dist.split_group(split_ranks=parts, **filtered)
            assert dist.get_process_group_ranks(group) == mine
            assert total(group) == sum(mine)
        # One of it again, whose ranks the job calls otherwise.
        outer = dist.split_group(split_ranks=[[1, 3], [0, 2]], **filtered)
        inner = dist.split_group(outer, split_ranks=[[0], [1]], **filtered)
        assert dist.get_process_group_ranks(inner) == [rank]
        assert total(inner) == rank
        if rank < 2:  # the others are in none of its parts
            assert total(dist.new_group([0, 1])) == 1
        else:
            dist.new_group([0, 1])
        if not filtered:
            mesh = init_device_mesh("npu", (2, 2), mesh_dim_names=("a", "b"))
            assert total(mesh.get_group("a")) == (2 if rank % 2 == 0 else 4)
            assert total(mesh.get_group("b")) == (1 if rank < 2 else 5)
        t = torch.ones(1).npu()
        dist.all_reduce(t)
        assert t.item() == 4  # the whole is as it was
        """.replace("BACKEND", repr(backend)),
        4,
    )
