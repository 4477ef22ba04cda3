"""Channels-last tensors give what cpu and gloo give, or are refused on all ranks."""

from __future__ import annotations

import pytest

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
def all_gather(i, o, d, group):
    out = rooms(o, d)
    dist.all_gather(out, made(value(rank), i, d), group)
    return out
def all_gather_into_tensor(i, o, d, group):
    out = room(n, o, d)
    dist.all_gather_into_tensor(out, made(value(rank), i, d), group)
    return [out]
def gather(i, o, d, group):
    out = rooms(o, d) if rank == 0 else []
    dist.gather(made(value(rank), i, d), out or None, 0, group)
    return out
def scatter(i, o, d, group):
    out = room(1, o, d)
    sent = [made(value(r), i, d) for r in range(n)] if rank == 0 else None
    dist.scatter(out, sent, 0, group)
    return [out]
def reduce_scatter(i, o, d, group):
    out = room(1, o, d)
    dist.reduce_scatter(out, [made(value(rank, r), i, d) for r in range(n)],
                        group=group)
    return [out]
def reduce_scatter_tensor(i, o, d, group):
    out = room(1, o, d)
    whole = torch.cat([value(rank, r) for r in range(n)])
    dist.reduce_scatter_tensor(out, made(whole, i, d), group=group)
    return [out]
def all_to_all(i, o, d, group):
    out = rooms(o, d)
    dist.all_to_all(out, [made(value(rank, r), i, d) for r in range(n)], group)
    return out
def all_to_all_single(i, o, d, group):
    out = room(n, o, d)
    whole = torch.cat([value(rank, r) for r in range(n)])
    dist.all_to_all_single(out, made(whole, i, d), group=group)
    return [out]
CALLS = (all_gather, all_gather_into_tensor, gather, scatter, reduce_scatter,
         reduce_scatter_tensor, all_to_all, all_to_all_single)
"""


@pytest.mark.parametrize("device", ["npu:0", "npu:1"])
def test_inputs_and_outputs_may_have_different_formats(ranks, device: str):
    # Gloo permutes without a word in three of the calls, where formats differ:
    # there it judges with contiguous tensors.
    ranks(
        TABLE
        + f"""
join("hccl", seconds=30)
gloo = dist.new_group(backend="gloo")
for call in CALLS:
    for i in (FIRST, LAST):
        for o in (FIRST, LAST):
            wanted = call(FIRST, FIRST, "cpu", gloo)
            got = call(i, o, "{device}", None)
            assert len(got) == len(wanted)
            for a, b in zip(got, wanted):
                assert torch.equal(a.cpu(), b), (call, i, o)
            if call not in (scatter, reduce_scatter, all_to_all_single):
                for a, b in zip(call(i, o, "cpu", gloo), wanted):
                    assert torch.equal(a, b), (call, i, o)
""",
        NPU_DISPATCH_DEVICES="2",
    )


def test_formats_that_are_not_the_same_on_all_ranks_are_found(ranks):
    for call in (
        "dist.broadcast(t, 0)",
        "dist.all_reduce(t)",
        "dist.reduce(t, 0)",
        "dist.send(t, 1) if rank == 0 else dist.recv(t, 0)",
    ):
        ranks(
            f"""
join(seconds=20)
form = torch.channels_last if rank == 0 else torch.contiguous_format
t = torch.ones(2, 3, 2, 2).npu().to(memory_format=form)
try:
    {call}
    torch.npu.synchronize()
except dist.DistBackendError as error:
    assert "the ranks disagree" in str(error), error
    assert "channels last" in str(error), error
else:
    raise AssertionError("nothing was raised")
os._exit(0)
"""
        )


def test_what_has_one_order_in_both_formats_agrees_with_both(ranks):
    ranks(
        """
        join(seconds=20)
        for shape in ((2, 1, 3, 3), (2, 3, 1, 1), (0, 3, 2, 2)):
            form = torch.channels_last if rank == 0 else torch.contiguous_format
            t = torch.ones(shape).npu().to(memory_format=form)
            dist.all_reduce(t)
            assert t.eq(2).all()
        t = torch.arange(24.).view(2, 3, 2, 2).npu()
        t = t.to(memory_format=torch.channels_last)
        for f in (dist.all_reduce, lambda t: dist.broadcast(t, 1)):
            f(t)
            assert t.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(t.cpu(), 2 * torch.arange(24.).view(2, 3, 2, 2))
        volume = torch.arange(48.).view(1, 3, 2, 2, 4).npu()
        volume = volume.to(memory_format=torch.channels_last_3d)
        out = [torch.zeros(1, 3, 2, 2, 4).npu() for _ in range(2)]
        dist.all_gather(out, volume)
        assert all(torch.equal(o.cpu(), volume.cpu()) for o in out)
        """
    )
