"""Works under way: waits, coalesced calls, streams of groups, blocking launches."""

import pytest


@pytest.mark.parametrize("blocking", ["0", "1"])
def test_a_wait_that_takes_too_long_names_the_call(ranks, blocking: str):
    ranks(
        """
        from npu_dispatch.distributed import DistributedError
        join("cpu:gloo,npu:hccl")
        gate = dist.new_group(backend="gloo")
        t = torch.ones(3).npu()
        dist.all_reduce(t)
        launch = lambda: dist.all_reduce(t, async_op=True)
        if rank == 1:
            dist.recv(torch.empty(1), 0, gate)
        work = launch()
        if rank == 0:
            limit = timedelta(milliseconds=200)
            error = raises(DistributedError, "200 ms", work.wait, limit)
            assert isinstance(error, dist.DistBackendError)
            assert error.op == "hccl:all_reduce" and error.seq == 1, error
            assert error.group and error.rank == 0, error
            line = launch.__code__.co_firstlineno
            assert any(f.lineno == line for f in error.launch_stack), error
            assert f"<string>:{line}" in str(error), error
            assert "clear_error" not in str(error), error  # nothing has failed
            assert not work.is_completed() and work.exception() is None
            dist.send(torch.ones(1), 1, gate)
        work.wait(timedelta(seconds=30))
        assert work.is_success() and t.eq(4).all()
        if rank == 0:
            work = dist.irecv(t, 1, tag=5)
            limit = timedelta(milliseconds=50)
            error = raises(DistributedError, "50 ms", work.wait, limit)
            assert error.op == "hccl:recv" and error.rank == 0, error
            dist.send(torch.ones(1), 1, gate)
            work.wait()
        else:
            dist.recv(torch.empty(1), 0, gate)
            dist.send(t, 0, tag=5)
        """,
        ASCEND_LAUNCH_BLOCKING=blocking,
    )


def test_a_later_failure_is_not_that_of_earlier_work(ranks):
    ranks(
        """
        join()
        t = torch.ones(3).npu()
        first = dist.all_reduce(t, async_op=True)
        first.wait()
        torch.npu.synchronize()
        second = dist.all_reduce(torch.ones(3 + rank).npu(), async_op=True)
        third = None
        while not second.is_completed():
            pass
        assert first.is_success() and first.exception() is None
        assert first.wait() and first.wait(timedelta(seconds=5))
        assert t.tolist() == [2] * 3
        assert not second.is_success()
        error = second.exception()
        assert isinstance(error, dist.DistBackendError), repr(error)
        assert "the ranks disagree" in str(error) and error.seq == 1, error
        for wait in (second.wait, lambda: second.wait(timedelta(seconds=5))):
            raises(dist.DistBackendError, "the ranks disagree", wait)
        os._exit(0)
        """
    )


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


FACTS = """
join_by_port(seconds=20)
@fact
def messages_to_one_peer_keep_their_order_across_batches():
    peer = 1 - rank
    sent = [torch.full((1000,), float(k)).npu() for k in range(6)]
    got = [torch.full((1000,), -1.).npu() for _ in sent]
    works = []
    for k, (a, b) in enumerate(zip(sent, got)):
        if k % 2:
            works += swap(a, b, peer)
        else:
            works += [dist.isend(a, peer), dist.irecv(b, peer)]
    waited(works)
    assert [t[7].item() for t in got] == list(range(6)), got
@fact
def idle_streams_serve_any_number_of_groups():
    from npu_dispatch.observe.segment import StatsReader, segment_file
    # Under it each group has a stream of its own.
    torch.npu._sanitizer.disable_npu_sanitizer()
    peer = 1 - rank
    for k in range(70):
        group = dist.new_group([0, 1])
        t, got = torch.full((3,), rank + 1.).npu(), torch.zeros(3).npu()
        dist.all_reduce(torch.ones(3).npu(), group=group, async_op=True).wait()
        waited([dist.isend(t, peer, group), dist.irecv(got, peer, group)])
        waited(swap(t, got, peer, group))
        assert got.eq(peer + 1).all()
    with StatsReader(segment_file()) as stats:
        assert len(stats.streams()) < 16
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
@fact
def messages_of_a_thread_that_blocks_do_not_wait_for_each_other():
    from npu_dispatch import _C
    _C.set_thread_launch_blocking(True)
    peer = 1 - rank
    mine, theirs = torch.full((3,), rank + 1.).npu(), torch.zeros(3).npu()
    waited([dist.isend(mine, peer), dist.irecv(theirs, peer)])
    assert theirs.eq(peer + 1).all()
    _C.set_thread_launch_blocking(False)
"""


def test_messages_streams_and_blocks_that_end_early(ranks):
    ranks(FACTS)


@pytest.mark.parametrize("blocking", ["0", "1"])
def test_more_messages_are_under_way_than_there_are_streams(ranks, blocking: str):
    # Both post all sends before any recv, and in opposite orders of the groups,
    # so no message may hold up one of another group.
    ranks(
        """
        join_by_port()
        peer, n = 1 - rank, 45
        groups = [dist.new_group([0, 1]) for _ in range(n)]
        sent = [torch.full((300,), 10. * k + rank).npu() for k in range(n)]
        got = [[torch.zeros(300).npu() for _ in range(4)] for _ in groups]
        order = range(n) if rank == 0 else range(n - 1, -1, -1)
        works = [dist.isend(sent[k] + 1000 * i, peer, groups[k])
                 for i in range(3) for k in order]
        # Of one peer in one direction, messages arrive in the order of the calls.
        works += [dist.irecv(got[k][i], peer, groups[k]) for k in order
                  for i in range(3)]
        works += [w for k in order
                  for w in swap(sent[k] + 3000, got[k][3], peer, groups[k])]
        works += [dist.all_reduce(torch.ones(3).npu(), group=g, async_op=True)
                  for g in groups]
        waited(works)
        for k, into in enumerate(got):
            for i, t in enumerate(into):
                assert t.eq(10 * k + peer + 1000 * i).all(), (k, i, t)
        """,
        ASCEND_LAUNCH_BLOCKING=blocking,
    )


def test_a_batch_does_not_hold_up_the_batch_behind_it(ranks):
    # Rank 0's first batch ends only when rank 2 has heard from rank 1, which
    # hears from rank 0's second batch.
    ranks(
        """
        join(seconds=20)
        t = torch.ones(2).npu()
        if rank == 0:
            waited(swap(t, t, 2) + swap(t, t, 1))
        elif rank == 1:
            waited(swap(t, t, 0))
            torch.npu.synchronize()
            dist.send(t, 2)
        else:
            dist.recv(t, 1)
            torch.npu.synchronize()
            waited(swap(t, t, 0))
        torch.npu.synchronize()
        """,
        3,
    )


def test_what_comes_behind_a_failed_message_is_refused_at_the_call(ranks):
    ranks(
        """
        join(seconds=20)
        peer = 1 - rank
        t, got = torch.ones(3 + rank).npu(), torch.zeros(3 + rank).npu()
        batch = lambda: swap(t, got, peer)
        for call in (lambda: batch()[0].wait(timedelta(seconds=10)), batch,
                     lambda: dist.isend(t, peer), lambda: dist.irecv(t, peer)):
            raises(dist.DistBackendError, "the ranks disagree", call)
        # The current stream goes on.
        assert torch.ones(2).npu().tolist() == [1, 1]
        os._exit(0)
        """
    )


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
