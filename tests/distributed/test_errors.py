"""What goes wrong between ranks is told by rank, call and line, and soon."""

from __future__ import annotations


def test_ranks_that_call_different_collectives_are_both_told(ranks):
    results = ranks(
        """
join()
t = torch.ones(3).npu()
dist.all_reduce(t)
first = lambda: dist.all_reduce(t)
second = lambda: dist.broadcast(t, 0)
error = failure(first if rank == 0 else second)
assert error.seq == 1 and error.rank == rank, error
assert "all_reduce #1" in str(error) and "broadcast #1" in str(error), error
lines = [f"<string>:{f.__code__.co_firstlineno}" for f in (first, second)]
assert all(line in str(error) for line in lines), (lines, error)
print(error)
os._exit(0)
"""
    )
    for result in results:
        assert "rank 1 is at" in result.stdout or "rank 0 is at" in result.stdout


def test_other_sizes_dtypes_and_reductions_are_found_before_data_moves(ranks):
    reduced = "dist.all_reduce(torch.ones(2).npu())"
    rooted = "dist.{}(torch.ones(2).npu(), {})".format
    for mine, other, words in (
        (reduced, "dist.all_reduce(torch.ones(4000).npu())", "4000 elements"),
        (reduced, "dist.all_reduce(torch.ones(2).int().npu())", "(Int, "),
        (reduced, "dist.all_reduce(torch.ones(2).npu(), dist.ReduceOp.MAX)", "MAX"),
        (reduced, rooted("broadcast", 1), "root 1"),
        (rooted("broadcast", 0), rooted("broadcast", 1), "root 0"),
        (rooted("reduce", 0), rooted("reduce", 1), "root 1"),
    ):
        ranks(
            f"""
join()
error = failure(lambda: {mine} if rank == 0 else {other})
assert "the ranks disagree" in str(error), error
assert {words!r} in str(error), error
os._exit(0)
"""
        )


def test_a_message_of_another_length_than_expected_is_an_error_of_both(ranks):
    ranks(
        """
join()
k = 10 if rank == 0 else 100000
t = torch.ones(k).npu()
error = failure(lambda: dist.send(t, 1) if rank == 0 else dist.recv(t, 0))
assert "rank 0 sends 40 bytes of Float, rank 1 receives 400000" in str(error), error
os._exit(0)
"""
    )


def test_a_timeout_names_the_ranks_that_have_not_called(ranks):
    ranks(
        """
store = dist.FileStore(sys.argv[3] + "x", 3)
join()
t = torch.ones(3).npu()
dist.all_reduce(t)
torch.npu.synchronize()  # all are here, and the limit is one of a call only
dist.group.WORLD.set_timeout(timedelta(seconds=5))
if rank != 1:
    error = failure(lambda: dist.all_reduce(t))
    assert error.missing_ranks == [1], error
    assert error.group and error.seq == 1, error
    store.set(f"done{rank}", "1")
else:
    store.wait(["done0", "done2"])
os._exit(0)
""",
        3,
    )


def test_a_script_that_fails_ends_although_a_collective_waits(ranks):
    # Rank 1 never calls: it ends when rank 0, whose timeout is longer than
    # ours, says that it has failed.
    results = ranks(
        """
join(seconds=600)
t = torch.ones(3).npu()
dist.all_reduce(t)
torch.npu.synchronize()
store = dist.distributed_c10d._get_default_store()
if rank == 0:
    store.get("synchronized")
    dist.all_reduce(t, async_op=True)
    raise ValueError("the script's own")
store.set("synchronized", "1")
error = failure(lambda: dist.recv(t, 0))
assert error.lost_rank == 0, error
assert "its program failed with ValueError: the script's own" in str(error), error
os._exit(0)
""",
        check=False,
    )
    assert results[0].returncode == 1 and "the script's own" in results[0].stderr
    assert results[1].returncode == 0, results[1].stderr


def test_a_script_that_fails_does_not_wait_for_a_rank_that_never_comes(ranks):
    # Rank 1 lives on, with its connections, until rank 0 has gone.
    results = ranks(
        """
import select
join(seconds=600)
store = dist.distributed_c10d._get_default_store()
t = torch.ones(3).npu()
if rank == 0:
    store.set("pid", str(os.getpid()))
    dist.all_reduce(t, async_op=True)
    raise ValueError("the script's own")
try:
    gone = select.select([os.pidfd_open(int(store.get("pid")))], [], [], 30)[0]
except ProcessLookupError:
    gone = True
os._exit(0 if gone else 7)
""",
        check=False,
    )
    assert [r.returncode for r in results] == [1, 0], results[0].stderr


def test_ranks_that_both_send_first_wait_and_are_told_of_each_other(ranks):
    # So they do with gloo: send() ends when the other rank has received.
    ranks(
        """
join(seconds=3)
t, got = torch.ones(3).npu(), torch.ones(3).npu()
def both():
    dist.send(t, 1 - rank)
    dist.recv(got, 1 - rank)
error = failure(both)
error = error.__cause__ or error  # the stream that waited for it raises
assert error.op == "hccl:send" and error.rank == rank, error
# The first to give up has left, perhaps, when the other is told.
assert error.lost_rank == 1 - rank or f"waiting for rank {1 - rank}" in str(error)
os._exit(0)
"""
    )
