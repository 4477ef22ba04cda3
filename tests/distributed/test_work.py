"""What a Work tells of its own call, and of no other."""

from __future__ import annotations

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
