"""Ranks of one host exchange through links; without them, all stays the same."""

import pytest
from ranks import WAYS, WITHOUT_LINKS

LINKED = """
def linked_peers():
    # A link's memory is mapped by both sides, and this rank's own is, too.
    with open("/proc/self/maps") as maps:
        return max(0, sum("npu_dispatch_links" in line for line in maps) - 1)
"""


def test_ranks_of_one_host_are_linked_unless_they_are_told_not_to_be(ranks):
    mixed = "assert linked_peers() == (0 if rank == size - 1 else 1), linked_peers()\n"
    ranks(WAYS["both"] + LINKED + "join()\n" + mixed, 3)


def test_links_go_with_their_group_and_have_said_all_when_a_rank_calls_no_more(ranks):
    ranks(
        LINKED
        + """
import gc
join()
with_links = linked_peers()
group = dist.new_group([0, 1])
dist.all_reduce(torch.ones(1).npu(), group=group)
torch.npu.synchronize()
assert linked_peers() > with_links
dist.destroy_process_group(group)
del group
gc.collect()
assert linked_peers() == with_links, linked_peers()
# Each of these messages is answered, and the answers do not fit into a ring.
tensors = [torch.full((2000,), float(i)).npu() for i in range(200)]
send = dist.isend if rank == 0 else dist.irecv
waited(dist.batch_isend_irecv([dist.P2POp(send, t, 1 - rank) for t in tensors]))
torch.npu.synchronize()
if rank == 0:
    store().set("sent", "1")
else:
    store().wait(["sent"])
    assert all(bool((t == i).all()) for i, t in enumerate(tensors))
"""
    )


def test_reductions_have_the_same_bits_on_all_ranks_and_by_both_ways(ranks):
    # More than fits into what is held of a part, and half precision.
    program = """
join()
import hashlib
def digest(t):
    data = t.cpu().contiguous().view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(data).hexdigest()
found = []
for dtype in (torch.float32, torch.bfloat16):
    for n in (1000, 100_003, 3_500_001):
        t = batch(n, n).to(dtype).npu()
        dist.all_reduce(t)
        found.append(digest(t))
every = [None] * size
dist.all_gather_object(every, found)
assert all(each == found for each in every), every
print(*found)
"""
    linked = ranks(program, 3)[0].stdout
    assert linked == ranks(WITHOUT_LINKS + program, 3)[0].stdout
    assert linked == ranks(WAYS["both"] + program, 3)[0].stdout


@pytest.mark.parametrize("way", ["links", "sockets"])
def test_a_batch_of_more_messages_than_a_ring_holds_arrives(ranks, way: str):
    # Twice: the second is on its way before the other rank has come.
    ranks(
        WAYS[way]
        + """
join()
n, other = 50, 1 - rank
def message(i, of):
    return torch.full((1 + 300 * (i % 3),), float(100 * of + i))
for turn in range(2):
    got = [torch.empty(1 + 300 * (i % 3)).npu() for i in range(n)]
    ops = [dist.P2POp(dist.isend, message(i, rank).npu(), other) for i in range(n)]
    ops += [dist.P2POp(dist.irecv, t, other) for t in got]
    if turn and rank:
        store().wait(["queued"])
    works = dist.batch_isend_irecv(ops)
    if turn and not rank:
        store().set("queued", "1")
    waited(works)
    for i, t in enumerate(got):
        assert torch.equal(t.cpu(), message(i, other)), (i, t)
"""
    )


def test_collectives_of_several_streams_pass_each_other(ranks):
    # Each rank calls in the same order, and its streams run as they like.
    ranks(
        """
join()
streams = [torch.npu.Stream() for _ in range(6)]
sizes = (1, 300, 50_000, 1_200_000)
results = []
for turn in range(20):
    for i, stream in enumerate(streams):
        with torch.npu.stream(stream):
            t = torch.full((sizes[(turn + i) % 4],), float(rank + turn + i)).npu()
            dist.all_reduce(t)
            results.append((t, float(sum(r + turn + i for r in range(size)))))
torch.npu.synchronize()
for t, wanted in results:
    assert bool((t == wanted).all()), (t, wanted)
""",
        3,
    )


def test_a_rank_that_is_killed_while_data_moves_is_named(ranks):
    results = ranks(
        """
import signal
join(seconds=100)
t = torch.ones(30_000_000).npu()
dist.all_reduce(t)
torch.npu.synchronize()
if rank == 1:
    for _ in range(3):
        dist.all_reduce(t, async_op=True)
    os.kill(os.getpid(), signal.SIGKILL)
error = failure(lambda: [dist.all_reduce(t) for _ in range(20)])
assert error.lost_rank == 1, error
os._exit(0)
""",
        check=False,
    )
    assert results[0].returncode == 0, results[0].stderr
