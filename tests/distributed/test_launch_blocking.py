"""Where launches block, an asynchronous call still returns before its peers call."""

from __future__ import annotations

import pytest

BLOCKING = [{"ASCEND_LAUNCH_BLOCKING": "1"}, {"TASK_QUEUE_ENABLE": "0"}]


@pytest.mark.parametrize("env", BLOCKING, ids=lambda env: next(iter(env)))
def test_asynchronous_calls_do_not_block_and_their_waits_do(ranks, env):
    ranks(
        """
        join("cpu:gloo,npu:hccl", seconds=20)
        peer = 1 - rank
        gate = dist.new_group(backend="gloo")
        mine, theirs = torch.full((3,), rank + 1.).npu(), torch.zeros(3).npu()
        def exchanged(works):
            for work in works:
                work.wait()
                assert work.is_completed()  # wait() is the launch that blocks
            assert theirs.cpu().eq(peer + 1).all()
            theirs.zero_()
        for k in range(2):  # the lanes are there already, the second time
            exchanged([dist.isend(mine, peer), dist.irecv(theirs, peer)])
            # Both post, and neither waits for what the other will post later.
            works = swap(mine, theirs, peer)
            if rank == 0:
                dist.send(torch.ones(1), 1, gate)
            else:
                dist.recv(torch.ones(1), 0, gate)
            exchanged(works)
        # Asynchronous collectives of two groups, in two orders.
        a, b = dist.new_group(), dist.new_group()
        t = [torch.ones(3).npu() for _ in range(2)]
        order = [(a, t[0]), (b, t[1])][:: 1 if rank == 0 else -1]
        works = [dist.all_reduce(x, group=g, async_op=True) for g, x in order]
        for work in works:
            work.wait()
            assert work.is_completed()
        assert all(x.tolist() == [2] * 3 for x in t)
        if rank == 0:
            work = dist.irecv(theirs)  # from any rank
            dist.send(mine, 1)
            work.wait()
            assert theirs.eq(2).all()
        else:
            work = dist.isend(mine, 0)
            dist.recv(theirs, 0)
            work.wait()
            assert theirs.eq(1).all()
        # A call that is not asynchronous is a launch that blocks.
        dist.all_reduce(mine)
        assert torch.npu.current_stream().query()
        """,
        **env,
    )


def test_the_call_or_the_wait_of_an_asynchronous_one_raises(ranks):
    ranks(
        """
        join()
        groups = [dist.new_group(), dist.new_group()]
        def disagrees(call):
            raises(dist.DistBackendError, "the ranks disagree", call)
            torch.npu.reset_device()
        t = torch.ones(3000 * (rank + 1)).npu()
        disagrees(lambda: dist.all_reduce(t, group=groups[0]))
        work = dist.all_reduce(t, group=groups[1], async_op=True)
        disagrees(work.wait)
        os._exit(0)
        """,
        **BLOCKING[0],
    )


def test_messages_of_a_thread_that_blocks_do_not_wait_for_each_other(ranks):
    ranks(
        """
        join(seconds=20)
        from npu_dispatch import _C
        _C.set_thread_launch_blocking(True)
        peer = 1 - rank
        mine, theirs = torch.full((3,), rank + 1.).npu(), torch.zeros(3).npu()
        waited([dist.isend(mine, peer), dist.irecv(theirs, peer)])
        assert theirs.eq(peer + 1).all()
        """
    )
