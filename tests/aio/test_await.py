"""`await event`, `await stream` and awaits of interprocess events, on both loops."""

import asyncio
import gc
import os
import subprocess
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from npu_dispatch import aio

ROUNDS = 300


def fail_on(stream):
    """Queue a task that fails when it runs."""
    with torch.npu.stream(stream):
        torch.zeros(2, device="npu")[torch.tensor([5]).npu()]


async def test_an_awaited_stream_is_idle_and_its_results_can_be_read(stream):
    host = torch.empty(1000, pin_memory=True)
    for i in range(ROUNDS):
        with torch.npu.stream(stream):
            host.copy_(torch.full((1000,), i, device="npu"), non_blocking=True)
        await stream
        assert stream.query()
        assert host[-1] == i


async def test_an_event_completes_before_later_work_of_its_stream(stream, gate):
    with torch.npu.stream(stream):
        x = torch.ones(10, device="npu") + 1
    event = stream.record_event()
    gate.close(stream)
    await event
    assert event.query()
    assert not stream.query()
    gate.open()
    assert x.eq(2).all()


async def test_an_event_that_was_never_recorded_is_done(stream, gate):
    gate.close(stream)
    event = torch.npu.Event()
    await event
    assert event.query()
    assert not stream.query()


async def test_the_loop_runs_while_the_device_is_busy(stream, gate):
    """The await ends only because another coroutine of the loop opens the gate."""
    gate.close(stream)
    order = []

    async def other():
        await asyncio.sleep(0)
        order.append("other")
        gate.open()

    task = asyncio.create_task(other())
    await stream
    order.append("stream")
    await task
    assert order == ["other", "stream"]


async def test_generic_streams_and_events_of_torch_are_awaited_by_wait(gate):
    stream = torch.Stream("npu")
    event = torch.Event("npu")
    gate.close(stream)
    stream.record_event(event)
    asyncio.get_running_loop().call_soon(gate.open)
    await aio.wait(event)
    assert event.query()
    await aio.wait(stream)
    assert stream.query()


async def test_wait_refuses_what_is_not_of_npu():
    with pytest.raises(ValueError, match="of npu, got one of cpu"):
        await aio.wait(torch.Stream("cpu"))


async def test_a_failure_is_raised_by_every_await_after_it_and_by_none_before(stream):
    before = stream.record_event()
    fail_on(stream)
    await before
    for _ in range(2):
        with pytest.raises(IndexError, match="out of"):
            await stream
    torch.npu.clear_error(stream)
    await stream


async def test_a_failure_while_awaited_reaches_every_waiter(stream, gate):
    gate.close(stream)
    fail_on(stream)
    waiting = [asyncio.ensure_future(aio.wait(stream)) for _ in range(5)]
    await asyncio.sleep(0)
    gate.open()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [isinstance(result, IndexError) for result in results] == [True] * 5
    torch.npu.clear_error(stream)


async def test_a_timeout_ends_the_wait_and_not_the_work(stream, gate):
    gate.close(stream)
    with torch.npu.stream(stream):
        x = torch.ones(3, device="npu") * 2
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await stream
    assert not stream.query()
    gate.open()
    await stream
    assert x.sum().item() == 6


async def test_cancelling_one_waiter_leaves_the_others(stream, gate):
    gate.close(stream)
    waiting = [asyncio.ensure_future(aio.wait(stream)) for _ in range(10)]
    await asyncio.sleep(0)
    for task in waiting[::2]:
        task.cancel()
    gate.open()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(r) for r in results[::2]] == [asyncio.CancelledError] * 5
    assert results[1::2] == [None] * 5


def test_a_loop_may_close_while_the_device_is_awaited(new_loop, stream, gate):
    async def main():
        gate.close(stream)
        async with asyncio.timeout(0):
            await stream

    for _ in range(3):
        with asyncio.Runner(loop_factory=new_loop) as runner:
            with pytest.raises(TimeoutError):
                runner.run(main())
            loop = runner.get_loop()
        assert loop.is_closed()
    gate.open()
    stream.synchronize()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(aio.wait(stream))


def test_closed_loops_leave_neither_memory_nor_descriptors(new_loop, stream, gate):
    def once():
        async def main():
            asyncio.get_running_loop().call_soon(gate.open)
            gate.close(stream)
            await stream

        loop = new_loop()
        loop.run_until_complete(main())
        loop.close()
        return weakref.ref(loop)

    def open_files():
        gc.collect()
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    once()
    before = open_files()
    loops = [once() for _ in range(10)]
    assert open_files() <= before
    assert not any(loop() for loop in loops)


def test_loops_in_many_threads_do_not_disturb_each_other(new_loop):
    def work(number):
        async def main():
            stream = torch.npu.Stream()
            host = torch.empty(100, pin_memory=True)
            for i in range(ROUNDS):
                value = number * ROUNDS + i
                with torch.npu.stream(stream):
                    x = torch.full((100,), value, device="npu")
                    host.copy_(x, non_blocking=True)
                await stream
                assert host[-1] == value, (number, i)

        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(main())

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))


async def test_ten_thousand_awaits_end_with_few_wake_ups(stream, gate):
    gate.close(stream)
    waiting = [asyncio.ensure_future(aio.wait(stream)) for _ in range(10_000)]
    await asyncio.sleep(0)
    from npu_dispatch.npu.streams import awaiting

    port = awaiting._bridges[asyncio.get_running_loop()]._port
    before = port.wake_ups
    # Done when all who wait have been told; the loop reads nothing meanwhile.
    stream.submit(lambda: None)
    gate.open()
    stream.synchronize()
    assert await asyncio.gather(*waiting) == [None] * 10_000
    assert port.wake_ups - before == 1


async def test_other_coroutines_run_between_batches_of_completions(stream, gate):
    n = 2000
    gate.close(stream)
    resumed = 0

    async def wait():
        nonlocal resumed
        await stream
        resumed += 1

    waiting = [asyncio.ensure_future(wait()) for _ in range(n)]
    await asyncio.sleep(0)
    gate.open()
    most, seen = 0, 0
    while resumed < n:
        await asyncio.sleep(0)
        most, seen = max(most, resumed - seen), resumed
    assert most <= 128
    await asyncio.gather(*waiting)


async def test_completions_within_a_turn_are_no_second_batch(stream, gate, new_gate):
    """The loop reads a pipe of ours between a batch and the port's descriptor.

    Both descriptors become readable while a batch is left over, ours first. When ours
    is read, the last of that batch are delivered and 128 more have arrived.
    """
    batch = 128
    one, many = torch.npu.Stream(), torch.npu.Stream()
    gates = {stream: gate, one: new_gate(), many: new_gate()}
    for held, its_gate in gates.items():
        its_gate.close(held)
    resumed = 0

    def arrive(at: torch.npu.Stream) -> None:
        gates[at].open()
        at.synchronize()

    async def wait(at: torch.npu.Stream) -> None:
        nonlocal resumed
        await at
        if resumed == 0:
            os.write(writing, b"x")
            arrive(one)
        resumed += 1

    def read() -> None:
        os.read(reading, 1)
        arrive(many)

    reading, writing = os.pipe()
    loop = asyncio.get_running_loop()
    loop.add_reader(reading, read)
    counts = {stream: 2 * batch + 44, one: 1, many: batch}
    waiting = [
        asyncio.ensure_future(wait(at)) for at, n in counts.items() for _ in range(n)
    ]
    await asyncio.sleep(0)
    arrive(stream)
    most, seen = 0, 0
    while resumed < sum(counts.values()):
        await asyncio.sleep(0)
        most, seen = max(most, resumed - seen), resumed
    assert most <= batch
    await asyncio.gather(*waiting)
    loop.remove_reader(reading)
    os.close(reading)
    os.close(writing)


def test_awaiting_outside_of_a_loop_says_so(stream, gate):
    gate.close(stream)
    with pytest.raises(RuntimeError, match="no running event loop"):
        stream.__await__().send(None)


async def test_a_record_of_this_process_is_awaited(stream, gate):
    event, order = torch.npu.Event(interprocess=True), []
    await event  # never recorded
    gate.close(stream)
    event.record(stream)

    async def other():
        await asyncio.sleep(0)
        order.append(event.query())
        gate.open()

    task = asyncio.create_task(other())
    await event
    order.append(event.query())
    await task
    assert order == [False, True]
    await aio.wait(event)


# Records the event when it is told to, behind work that stands still until then.
CHILD = """
import sys, torch
event = torch.npu.Event.from_ipc_handle(0, bytes.fromhex(sys.argv[1]))
gate = torch.npu.ExternalEvent()
gate.wait(torch.npu.current_stream())
event.record()
print("recorded", flush=True)
sys.stdin.readline()
gate.record(torch.npu.Stream())
torch.npu.synchronize()
"""


@pytest.fixture
def recorded_elsewhere(python):
    """An event that another process has recorded, and that process."""
    event = torch.npu.Event(interprocess=True)
    arguments = ("-c", CHILD, event.ipc_handle().hex())
    child = python.start(*arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout.readline() == "recorded\n"
    yield event, child
    child.stdin.close()
    child.stdout.close()
    assert child.wait(60) == 0


async def test_a_record_of_another_process_is_awaited(recorded_elsewhere):
    event, child = recorded_elsewhere
    waiter = asyncio.ensure_future(aio.wait(event))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waiter.done()
    assert not event.query()

    child.stdin.write("go\n")
    child.stdin.flush()
    await waiter
    assert event.query()


def test_its_number_is_no_event_of_the_engine():
    event = torch.npu.Event(interprocess=True)
    event.record()
    event.synchronize()
    timed = torch.npu.Event(enable_timing=True)
    timed.record()

    with pytest.raises(RuntimeError, match="interprocess event"):
        timed.elapsed_time(event)
