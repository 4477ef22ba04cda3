"""Channels-last tensors give what cpu and gloo give."""

from __future__ import annotations

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


FACTS = """
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
    ranks(TABLE + FACTS, NPU_DISPATCH_DEVICES="2")
