"""Collectives are tasks of streams: order, overlap, memory, point to point."""

FACTS = """
join("cpu:gloo,npu:hccl")
@fact
def an_asynchronous_call_returns_before_its_peers_have_called():
    t = torch.full((4,), rank + 1.).npu()
    if rank == 0:
        work = dist.all_reduce(t, async_op=True)
        assert not work.is_completed()
        # Another stream goes on while this one's launcher waits.
        other = (torch.ones(3).npu() + 1).cpu()
        assert other.tolist() == [2, 2, 2]
        dist.send(torch.ones(1), 1)   # over gloo: only now the peer calls
    else:
        dist.recv(torch.empty(1), 0)
        work = dist.all_reduce(t, async_op=True)
    work.wait()
    assert (t * 2).cpu().tolist() == [6] * 4
@fact
def memory_of_a_pending_collective_is_not_reused():
    t = torch.full((1000,), rank + 1.).npu()
    out = torch.zeros(2000).npu()
    if rank == 0:
        work = dist.all_gather_into_tensor(out, t, async_op=True)
        del t
        for _ in range(10):  # would get the block at once
            torch.full((1000,), 7.).npu()
        torch.npu.current_stream().synchronize()
        dist.send(torch.ones(1), 1)
    else:
        dist.recv(torch.empty(1), 0)
        work = dist.all_gather_into_tensor(out, t, async_op=True)
    work.wait()
    assert out.cpu().tolist() == [1.] * 1000 + [2.] * 1000
@fact
def a_future_runs_its_callback_behind_the_collective():
    t = torch.full((4,), rank + 1.).npu()
    future = dist.all_reduce(t, async_op=True).get_future()
    doubled = future.then(lambda f: f.value()[0] * 2).wait()
    assert doubled.cpu().tolist() == [6] * 4
@fact
def a_message_with_a_tag_is_received_from_any_rank():
    if rank == 0:
        dist.send(torch.tensor([5.]).npu(), 1, tag=9)
    else:
        got = torch.empty(1).npu()
        assert dist.recv(got, None, tag=9) == 0 and got.item() == 5
@fact
def a_group_waits_for_all_that_it_has_queued():
    gate = dist.new_group(backend="gloo")
    peer, n = 1 - rank, 1 << 21
    sent = torch.full((n,), rank + 1.).npu()
    got, summed = torch.zeros(n).npu(), torch.full((n,), rank + 1.).npu()
    if rank == 1:
        dist.recv(torch.empty(1), 0, gate)  # rank 0 has queued everything
    works = [dist.isend(sent, peer), dist.irecv(got, peer),
             dist.all_reduce(summed, async_op=True)]
    if rank == 0:
        dist.send(torch.ones(1), 1, gate)
    dist.group.WORLD._wait_for_pending_works()
    assert all(work.is_completed() for work in works)
    for work in works: work.wait()
    assert got.eq(peer + 1).all() and summed.eq(3).all()
@fact
def a_group_that_has_ended_leaves_its_streams_to_the_next():
    from npu_dispatch.observe.segment import StatsReader, segment_file
    # Under it each group has a stream of its own.
    torch.npu._sanitizer.disable_npu_sanitizer()
    def once():
        group = dist.new_group([0, 1])
        t, got = torch.ones(1000).npu(), torch.empty(1000).npu()
        dist.all_reduce(t, group=group)
        waited([dist.isend(t, 1 - rank, group), dist.irecv(got, 1 - rank, group)])
        assert got.eq(2).all()
        dist.destroy_process_group(group)
        with StatsReader(segment_file()) as stats:
            return len(stats.streams())
    assert once() == once() == once()
"""


def test_collectives_are_tasks_of_streams(ranks):
    ranks(FACTS)
