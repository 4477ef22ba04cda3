"""A wait that ends early leaves what was queued, and its memory, as it is."""

import contextlib
import functools
import gc
import signal
import threading
import weakref
from collections.abc import Iterator

import numpy
import pytest
import torch
from held_stream import Held
from open_waits import when_waiting


@contextlib.contextmanager
def launches_whose_wait_is_refused() -> Iterator[None]:
    """Run a block in which a launch is queued, and then its wait raises."""
    with (
        torch.npu.launch_blocking(),
        torch.npu.sync_guard("error", explicit=True),
        pytest.raises(torch.npu.HostSyncError),
    ):
        yield


@contextlib.contextmanager
def interrupted_when_waiting(reason: str) -> Iterator[None]:
    """Send this thread Ctrl-C once it waits for that reason."""
    interrupt = functools.partial(
        signal.pthread_kill, threading.get_ident(), signal.SIGINT
    )
    with when_waiting(reason, interrupt), pytest.raises(KeyboardInterrupt):
        yield


def test_an_event_is_recorded_without_a_wait():
    event, later = (torch.npu.Event(enable_timing=True) for _ in range(2))
    with Held():
        with torch.npu.launch_blocking(), torch.npu.sync_guard("error", explicit=True):
            event.record()
        assert not event.query()
    later.record()
    later.synchronize()

    assert event.query()
    assert event.elapsed_time(later) >= 0


@pytest.mark.parametrize("pinned", [True, False], ids=["pinned", "staged"])
def test_pinned_memory_is_not_reused_before_the_copy(pinned):
    n = 100_000
    target, host = torch.empty(n, device="npu"), torch.full((n,), 3.0)
    host = host.pin_memory() if pinned else host
    with Held():
        with launches_whose_wait_is_refused():
            target.copy_(host, non_blocking=True)
        del host
        others = [torch.full((n,), 9.0).pin_memory() for _ in range(2)]

    assert target.eq(3).all()
    assert len(others) == 2


def test_pinned_memory_is_not_reused_before_it_is_written():
    n = 100_000
    source = torch.full((n,), 3.0, device="npu")
    host = torch.zeros(n).pin_memory()
    with Held():
        with launches_whose_wait_is_refused():
            host.copy_(source, non_blocking=True)
        del host
        others = [torch.full((n,), 9.0).pin_memory() for _ in range(2)]
    torch.npu.synchronize()

    assert all(other.eq(9).all() for other in others)


def test_the_source_of_a_large_upload_stays_until_it_is_read():
    def array() -> numpy.ndarray:
        return numpy.full(2 << 20, 3.0, dtype=numpy.float32)

    owner = array()
    alive = weakref.ref(owner)
    target = torch.empty(owner.size, device="npu")
    with Held():
        with interrupted_when_waiting("h2d"):
            target.copy_(torch.from_numpy(owner))
        del owner
        gc.collect()
        kept = alive() is not None
    torch.npu.synchronize()
    assert kept
    assert target.eq(3).all()

    target.copy_(torch.from_numpy(array()))
    assert alive() is None


def test_an_external_event_is_recorded_without_a_wait():
    event = torch.npu.ExternalEvent()
    with Held():
        with torch.npu.launch_blocking(), torch.npu.sync_guard("error", explicit=True):
            event.record(torch.npu.current_stream())
        waiting = torch.npu.Stream()
        event.wait(waiting)
        assert not waiting.query()
    waiting.synchronize()


def test_a_callback_may_launch_while_launches_block():
    x, y = torch.ones(4).npu(), torch.zeros(4).npu()

    def launch(*views: torch.Tensor) -> None:
        y.add_(x)

    with torch.npu.launch_blocking():
        torch.npu.current_stream().submit(launch, x, y)
    torch.npu.synchronize()
    assert y.tolist() == [1] * 4


@pytest.mark.parametrize("n", [1, 200])
def test_a_callback_may_launch_on_its_own_direct_stream(n):
    stream, results = torch.npu.SyncLaunchStream(), []
    xs = [torch.full((3,), float(i)).npu() for i in range(n)]
    torch.npu.synchronize()

    def launch(*views: torch.Tensor) -> None:
        assert len(views) == n
        with torch.npu.stream(stream):
            results.append(torch.stack(xs).sum(0))
            torch._foreach_add_(xs, 1)
            results.append(torch.stack(xs).sum(0))

    for _ in range(3):
        stream.submit(launch, *xs)
    stream.synchronize()

    first = sum(range(n))
    found = [r[0].item() for r in results]
    assert found == [first + n * i for i in (0, 1, 1, 2, 2, 3)]
