"""More groups and more unfinished messages than there are streams for them."""

from __future__ import annotations

import pytest

FACTS = """
join_by_port()
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
"""


def test_streams_are_shared_and_messages_keep_their_order(ranks):
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
