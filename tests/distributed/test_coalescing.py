"""Calls that are coalesced: what ends with them, and what stays after a refusal."""

from __future__ import annotations

FACTS = """
join(seconds=20)
@fact
def a_refused_batch_leaves_the_group_as_it_was():
    peer = 1 - rank
    good, out = torch.full((4,), rank + 1.).npu(), torch.zeros(4).npu()
    bad = torch.ones(2, 3).npu().t()
    for sent, got in ((bad, out), (good, bad)):  # none, or one of them was taken
        raises(ValueError, "contiguous", swap, sent, got, peer)
        t = torch.ones(3).npu()
        dist.all_reduce(t)
        assert t.tolist() == [2] * 3
        if rank == 0:
            dist.send(good, 1)
        else:
            dist.recv(out, 0)
            assert out.eq(1).all()
        waited(swap(good, out, peer))
        assert out.eq(peer + 1).all()
@fact
def an_exception_within_a_coalesced_block_ends_it():
    t = torch.ones(3).npu()
    def stopped(device):
        with dist._coalescing_manager(device=device):
            dist.all_reduce(t)
            raise KeyError("the program's own")
    for device in (None, torch.device("npu")):
        raises(KeyError, "the program's own", stopped, device)
        assert t.tolist() == [1] * 3  # what was collected is not called
        u = torch.ones(3).npu()
        dist.all_reduce(u)
        assert u.tolist() == [2] * 3
        with dist._coalescing_manager(device=device):
            dist.all_reduce(u)
        assert u.tolist() == [4] * 3
"""


def test_what_ends_early_leaves_the_group_as_it_was(ranks):
    ranks(FACTS)


def test_coalesced_calls_are_waited_for_with_messages_and_on_another_device(ranks):
    ranks(
        """
        join("cpu:gloo,npu:hccl", seconds=20)
        device = torch.device("npu:1")
        gate = dist.new_group(backend="gloo")
        assert torch.npu.current_device() == 0
        def coalesced(device, call, tensors):
            # Rank 1 calls when rank 0 has called and waits; copies are behind that.
            if rank == 1:
                dist.recv(torch.empty(1), 0, gate)
            with dist._coalescing_manager(device=device, async_ops=True) as both:
                call()
            both.wait()
            copies = [t.clone() for t in tensors]
            if rank == 0:
                dist.send(torch.ones(1), 1, gate)
            return copies
        for devices in ([device], [device, torch.device("npu:0")]):
            tensors = [torch.ones(3, device=d) for d in devices]
            rows = [torch.zeros(6, device=d) for d in devices]
            def gathered():
                for t, row in zip(tensors, rows):
                    dist.all_gather(list(row.chunk(2)), t + rank, async_op=True)
            for copy in coalesced(device, gathered, rows):
                assert copy.tolist() == [1] * 3 + [2] * 3, copy
        peer = 1 - rank
        got, out = torch.zeros(2).npu(), torch.zeros(4).npu()
        def mixed():
            dist.isend(torch.full((2,), rank + 1.).npu(), peer)
            dist.irecv(got, peer)
            dist.all_gather(list(out.chunk(2)), torch.full((2,), rank + 1.).npu(),
                            async_op=True)
        message, whole = coalesced(torch.device("npu"), mixed, [got, out])
        assert message.eq(peer + 1).all() and whole.tolist() == [1, 1, 2, 2]
        """,
        NPU_DISPATCH_DEVICES="2",
    )
