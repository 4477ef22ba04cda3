"""Calls that are coalesced: what ends with them, and what stays after a refusal."""

from __future__ import annotations


def test_a_refused_batch_leaves_the_group_as_it_was(ranks):
    ranks(
        """
        join(seconds=20)
        peer = 1 - rank
        good, out = torch.full((4,), rank + 1.).npu(), torch.zeros(4).npu()
        bad = torch.ones(2, 3).npu().t()
        for ops in (
            [(dist.isend, bad), (dist.irecv, out)],
            [(dist.isend, good), (dist.irecv, bad)],  # one of them was taken
        ):
            try:
                dist.batch_isend_irecv([dist.P2POp(f, t, peer) for f, t in ops])
            except ValueError as error:
                assert "contiguous" in str(error), error
            else:
                raise AssertionError("it was accepted")
            t = torch.ones(3).npu()
            dist.all_reduce(t)
            assert t.tolist() == [2] * 3
            if rank == 0:
                dist.send(good, 1)
            else:
                dist.recv(out, 0)
                assert out.eq(1).all()
            works = dist.batch_isend_irecv(
                [dist.P2POp(dist.isend, good, peer), dist.P2POp(dist.irecv, out, peer)])
            for work in works: work.wait()
            assert out.eq(peer + 1).all()
        """
    )


def test_an_exception_within_a_coalesced_block_ends_it(ranks):
    ranks(
        """
        join(seconds=20)
        t = torch.ones(3).npu()
        for device in (None, torch.device("npu")):
            try:
                with dist._coalescing_manager(device=device):
                    dist.all_reduce(t)
                    raise KeyError("the program's own")
            except KeyError:
                pass
            assert t.tolist() == [1] * 3  # what was collected is not called
            u = torch.ones(3).npu()
            dist.all_reduce(u)
            assert u.tolist() == [2] * 3
            with dist._coalescing_manager(device=device):
                dist.all_reduce(u)
            assert u.tolist() == [4] * 3
        """
    )


def test_coalesced_calls_on_another_device_are_waited_for(ranks):
    ranks(
        """
        join("cpu:gloo,npu:hccl", seconds=20)
        device = torch.device("npu:1")
        gate = dist.new_group(backend="gloo")
        assert torch.npu.current_device() == 0
        for devices in ([device], [device, torch.device("npu:0")]):
            tensors = [torch.ones(3, device=d) for d in devices]
            rows = [torch.zeros(6, device=d) for d in devices]
            if rank == 1:
                dist.recv(torch.empty(1), 0, gate)  # rank 0 has called, and waits
            with dist._coalescing_manager(device=device, async_ops=True) as both:
                for t, row in zip(tensors, rows):
                    dist.all_gather(list(row.chunk(2)), t + rank, async_op=True)
            copies = []
            if rank == 0:
                both.wait()
                copies = [row.clone() for row in rows]  # behind the wait
                dist.send(torch.ones(1), 1, gate)
            else:
                both.wait()
                copies = [row.clone() for row in rows]
            for copy in copies:
                assert copy.tolist() == [1] * 3 + [2] * 3, copy
        """,
        NPU_DISPATCH_DEVICES="2",
    )


def test_messages_and_collectives_may_be_coalesced_together(ranks):
    ranks(
        """
        join("cpu:gloo,npu:hccl", seconds=20)
        gate = dist.new_group(backend="gloo")
        peer = 1 - rank
        got, out = torch.zeros(2).npu(), torch.zeros(4).npu()
        if rank == 1:
            dist.recv(torch.empty(1), 0, gate)
        with dist._coalescing_manager(device=torch.device("npu"), async_ops=True) as c:
            dist.isend(torch.full((2,), rank + 1.).npu(), peer)
            dist.irecv(got, peer)
            dist.all_gather(list(out.chunk(2)), torch.full((2,), rank + 1.).npu(),
                            async_op=True)
        c.wait()
        copies = got.clone(), out.clone()
        if rank == 0:
            dist.send(torch.ones(1), 1, gate)
        assert copies[0].eq(peer + 1).all() and copies[1].tolist() == [1, 1, 2, 2]
        """
    )
