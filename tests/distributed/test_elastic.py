"""torchrun starts the ranks again, and they find each other."""

from __future__ import annotations

WORKER = """
import os, signal, sys
from datetime import timedelta
import torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("cpu:gloo,npu:hccl", timeout=timedelta(seconds=40))
rank, start = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
t = torch.full((3,), rank + 1.).npu()
dist.all_reduce(t)
assert t.tolist() == [3, 3, 3]
t = torch.ones(1)  # by gloo, which has the same store
dist.all_reduce(t)
assert t.item() == 2
os.write(1, f"start {start} rank {rank}\\n".encode())  # in one piece
dist.all_reduce(torch.ones(1))  # when both have said so: torchrun ends the other
if start == 0:
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(1).npu())
    torch.npu.synchronize()  # raises: rank 1 is lost
dist.destroy_process_group()
os.write(1, f"end {start} rank {rank}\\n".encode())
"""


def test_killed_ranks_are_started_again_and_join(fresh_python, tmp_path):
    worker = tmp_path / "worker.py"
    worker.write_text(WORKER)

    done = fresh_python.run(
        *("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
        *("--max-restarts", "1", "--monitor-interval", "0.1", str(worker)),
    )

    assert done.returncode == 0, done.stderr
    lines = sorted(done.stdout.splitlines())
    assert lines == [
        "end 1 rank 0",
        "end 1 rank 1",
        "start 0 rank 0",
        "start 0 rank 1",
        "start 1 rank 0",
        "start 1 rank 1",
    ]


def test_words_that_dead_ranks_left_are_not_taken_for_the_living(ranks):
    """Rank 0 first, last, and with all that an earlier start had written."""
    ranks(
        """
        import threading
        from npu_dispatch.distributed._rejoin import store_of_this_start
        join("gloo")
        store = dist.FileStore(sys.argv[3] + "kept", size)
        names = set()
        for first in (0, 1, 2, 0):
            if rank != first:  # comes when that one has called
                dist.barrier()
            else:
                called = threading.Timer(0, dist.barrier)
                called.start()
            part = store_of_this_start(store, rank, size, timedelta(seconds=30))
            if rank == first:
                called.join()
            part.set(f"at/{rank}", "here")
            for r in range(size):
                assert part.get(f"at/{r}") == b"here"
            assert part.add("joined", 1) <= size
            words = [None] * size
            dist.all_gather_object(words, store.get("npu_dispatch/start/welcome/1"))
            names.add(words[0].split()[1])
        assert len(names) == 4
        if rank == 2:
            try:
                store_of_this_start(store, rank, size, timedelta(seconds=0.1))
            except dist.DistStoreError as error:
                assert "waited in vain for rank 0" in str(error), error
            else:
                raise AssertionError("nobody welcomed it")
        dist.barrier()
        """,
        3,
    )
