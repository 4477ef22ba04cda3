"""More groups and more unfinished messages than there are streams for them."""

from __future__ import annotations


def test_idle_streams_serve_any_number_of_groups(ranks):
    ranks(
        """
        from npu_dispatch.stats import StatsReader, segment_file
        join()
        peer = 1 - rank
        for k in range(70):
            group = dist.new_group([0, 1])
            t, got = torch.full((3,), rank + 1.).npu(), torch.zeros(3).npu()
            dist.all_reduce(torch.ones(3).npu(), group=group, async_op=True).wait()
            for work in [dist.isend(t, peer, group), dist.irecv(got, peer, group)]:
                work.wait()
            for work in dist.batch_isend_irecv([
                dist.P2POp(dist.isend, t, peer, group),
                dist.P2POp(dist.irecv, got, peer, group)]):
                work.wait()
            assert got.eq(peer + 1).all()
        with StatsReader(segment_file()) as stats:
            assert len(stats.streams()) < 16
        """
    )


def test_more_messages_are_under_way_than_there_are_streams(ranks):
    # Both post all sends before any recv, so sends must not hold up recvs. The
    # messages of a group stay in order; the last of them is one of a batch.
    ranks(
        """
        join("cpu:gloo,npu:hccl", seconds=60)
        peer = 1 - rank
        groups = [dist.new_group([0, 1]) for _ in range(45)]
        gate = dist.new_group(backend="gloo")
        sent = [torch.full((300,), 3. * k + rank).npu() for k in range(45)]
        got = [[torch.zeros(300).npu() for _ in range(3)] for _ in groups]
        works = []
        for g, t in zip(groups, sent):
            works += [dist.isend(t + 1000 * i, peer, g) for i in range(2)]
        for g, t, into in zip(groups, sent, got):
            works += dist.batch_isend_irecv([
                dist.P2POp(dist.isend, t + 2000, peer, g)])
        # Of one peer in one direction, messages arrive in the order of the calls.
        for g, into in zip(groups, got):
            works += [dist.irecv(into[i], peer, g) for i in range(3)]
        works += [dist.all_reduce(torch.ones(3).npu(), group=g, async_op=True)
                  for g in groups]
        for work in works: work.wait()
        for k, into in enumerate(got):
            for i, t in enumerate(into):
                assert t.eq(3 * k + peer + 1000 * i).all(), (k, i, t)
        """
    )


def test_messages_to_one_peer_keep_their_order_across_batches(ranks):
    ranks(
        """
        join()
        peer = 1 - rank
        sent = [torch.full((1000,), float(k)).npu() for k in range(6)]
        got = [torch.full((1000,), -1.).npu() for _ in sent]
        works = []
        for k, (a, b) in enumerate(zip(sent, got)):
            if k % 2:
                works += dist.batch_isend_irecv([
                    dist.P2POp(dist.isend, a, peer), dist.P2POp(dist.irecv, b, peer)])
            else:
                works += [dist.isend(a, peer), dist.irecv(b, peer)]
        for work in works: work.wait()
        assert [t[7].item() for t in got] == list(range(6)), got
        """
    )


def test_a_batch_does_not_hold_up_the_batch_behind_it(ranks):
    # Rank 0's first batch ends only when rank 2 has heard from rank 1, which
    # hears from rank 0's second batch.
    ranks(
        """
        join(seconds=20)
        t = torch.ones(2).npu()
        op = lambda f, peer: dist.P2POp(f, t, peer)
        if rank == 0:
            works = dist.batch_isend_irecv([op(dist.isend, 2), op(dist.irecv, 2)])
            works += dist.batch_isend_irecv([op(dist.isend, 1), op(dist.irecv, 1)])
            for work in works: work.wait()
        elif rank == 1:
            for work in dist.batch_isend_irecv([op(dist.isend, 0), op(dist.irecv, 0)]):
                work.wait()
            torch.npu.synchronize()
            dist.send(t, 2)
        else:
            dist.recv(t, 1)
            torch.npu.synchronize()
            for work in dist.batch_isend_irecv([op(dist.isend, 0), op(dist.irecv, 0)]):
                work.wait()
        torch.npu.synchronize()
        """,
        3,
    )
