"""monitored_barrier names the ranks that have not come, as gloo's does."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("backend", ["hccl", "cpu:gloo,npu:hccl"])
def test_ranks_that_all_come_pass(ranks, backend: str):
    ranks(
        f"""
        join({backend!r})
        part = dist.new_group([0, 2])
        for k in range(3):
            dist.monitored_barrier()
            dist.monitored_barrier(timeout=timedelta(seconds=20), wait_all_ranks=True)
            if rank != 1:
                dist.monitored_barrier(part)
        dist.monitored_barrier(dist.new_group([rank], use_local_synchronization=True))
        raises(TypeError, "timedelta", lambda: dist.monitored_barrier(timeout=5))
        dist.monitored_barrier()
        """,
        3,
    )


MISSING = """
from npu_dispatch.distributed import DistributedError
join(BACKEND)
store = dist.PrefixStore("test", dist.distributed_c10d._get_default_store())
ours = BACKEND != "gloo"
if rank in (1, 2):
    store.wait(["rank 0 was told"])
    if not ours: os._exit(0)
error = raises(RuntimeError, "", lambda: dist.monitored_barrier(
    timeout=timedelta(seconds=1), wait_all_ranks=ALL))
if rank == 0:
    named = error.missing_ranks if ours else [
        r for r in (1, 2, 3) if f" {r}" in str(error).partition("]:")[2]]
    assert named == ([1, 2] if ALL else [1]), error
if ours:
    assert isinstance(error, DistributedError), error
    assert error.op == "hccl:monitored_barrier" and error.rank == rank, error
    assert rank == 0 or "rank 0" in str(error), error
if rank == 0:
    store.set("rank 0 was told", "1")
if ours:  # the ranks are in step, and their connections are whole
    dist.monitored_barrier()
    t = torch.ones(3).npu()
    dist.all_reduce(t)
    assert t.tolist() == [4] * 3
    dist.monitored_barrier()
os._exit(0)
"""


# How gloo behaves, which ours is to do, too, is asked once.
@pytest.mark.parametrize(
    ("backend", "all_ranks"), [("hccl", False), ("hccl", True), ("gloo", True)]
)
def test_ranks_that_do_not_come_are_named(ranks, backend: str, all_ranks: bool):
    code = MISSING.replace("BACKEND", repr(backend)).replace("ALL", str(all_ranks))
    ranks(code, 4)


def test_the_other_ranks_are_told_when_rank_0_does_not_come(ranks):
    ranks(
        """
        join("hccl")
        store = dist.PrefixStore("test", dist.distributed_c10d._get_default_store())
        if rank == 0:
            store.wait(["told"])
            os._exit(0)
        late = lambda: dist.monitored_barrier(timeout=timedelta(seconds=1))
        assert failure(late).missing_ranks == [0]
        store.set("told", "1")
        os._exit(0)
        """
    )
