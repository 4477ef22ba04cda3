"""What awaiting the device costs, against a bare descriptor on the same loop.

`wake` times one completion to one resumed coroutine: a task at the end of the
stream notes the time (an event with timing), and the coroutine that awaits it
notes its own. The floor is a task that notes the time and writes an eventfd
whose reader resolves a future: what any wake-up from that thread costs.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import statistics
import time

import torch
import uvloop
from _harness import bench, emit, in_turns

from npu_dispatch import _C

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
clock = time.monotonic_ns


async def device_wake(n: int) -> list[float]:
    """Microseconds from the device's note to the coroutine's, while it sleeps."""
    stream = torch.npu.Stream()
    x = torch.rand(160, 160, device="npu")
    event = torch.npu.Event(enable_timing=True)
    samples = []
    for _ in range(n):
        with torch.npu.stream(stream):
            x @ x  # a tenth of a millisecond: the loop is asleep by then
            event.record(stream)
        await event
        now = clock()
        samples.append((now - event.recorded_time()) / 1e3)
    return samples


async def bare_wake(n: int) -> list[float]:
    """The same where the task itself writes to a descriptor of this loop."""
    loop = asyncio.get_running_loop()
    fd = os.eventfd(0, os.EFD_NONBLOCK)
    waiting: asyncio.Future[None] | None = None

    def readable() -> None:
        os.eventfd_read(fd)
        assert waiting
        waiting.set_result(None)

    loop.add_reader(fd, readable)
    stream = torch.npu.Stream()
    x = torch.rand(160, 160, device="npu")
    samples = []
    noted = ctypes.c_uint64()
    for _ in range(n):
        waiting = loop.create_future()
        with torch.npu.stream(stream):
            x @ x
            _C.submit_write(fd, ctypes.addressof(noted))
        await waiting
        samples.append((clock() - noted.value) / 1e3)
    stream.synchronize()
    loop.remove_reader(fd)
    os.close(fd)
    return samples


async def many(n: int) -> dict[str, float]:
    """`n` awaits at once: the longest time in which the loop did nothing else.

    The worst of all repetitions is reported.
    """
    loop = asyncio.get_running_loop()
    # Holds the stream until a task is submitted to the holder.
    holder, stream = torch.npu.Stream(), torch.npu.Stream()
    held, by = ((s.device_index, s.stream_id) for s in (stream, holder))
    _C.stream_wait(*held, *by, _C.stream_tail(*by) + 1)
    longest, running = 0, True

    async def heartbeat() -> None:
        nonlocal longest
        last = clock()
        while running:
            await asyncio.sleep(0)
            now = clock()
            longest, last = max(longest, now - last), now

    heart = loop.create_task(heartbeat())

    async def wait() -> None:
        await stream

    waiting = []
    for i in range(n):
        waiting.append(loop.create_task(wait()))
        if i % 100 == 99:  # as requests come: not all in one turn of the loop
            await asyncio.sleep(0)
    await asyncio.sleep(0)
    starting = longest
    longest = 0
    with torch.npu.stream(holder):
        _C.submit_nothing()
    while not all(task.done() for task in waiting[-200:]):
        await asyncio.sleep(0)
    for i, task in enumerate(waiting):
        await task
        if i % 100 == 99:  # those that are done do not let others run
            await asyncio.sleep(0)
    running = False
    await heart
    return {
        "stall_starting_ms": round(starting / 1e6, 2),
        "stall_completing_ms": round(longest / 1e6, 2),
    }


@bench(rounds=(1000, 400, 2), repetitions=(5, 3, 1), awaits=(10_000, 10_000, 300))
def main(rounds: int, repetitions: int, awaits: int) -> None:
    """Print a JSON line per loop and case."""
    for name, new_loop in LOOPS.items():
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(device_wake(min(100, rounds)))
            # As servers do once they have started: a full collection walks all
            # of torch's objects, a stall of a tenth of a second, not ours.
            gc.collect()
            gc.freeze()
            blocks = {
                wake: lambda wake=wake: statistics.median(runner.run(wake(rounds)))
                for wake in (device_wake, bare_wake)
            }
            device, bare = in_turns(blocks, repetitions).values()
            ratios = (a / b for a, b in zip(device, bare, strict=True))
            emit(
                case=f"wake_{name}",
                ratio_p50=round(statistics.median(ratios), 2),
                device_p50_us=round(statistics.median(device), 2),
                bare_p50_us=round(statistics.median(bare), 2),
            )
            runs = [runner.run(many(awaits)) for _ in range(repetitions)]
            worst = {key: max(run[key] for run in runs) for key in runs[0]}
            emit(case=f"many_{name}", **worst)


if __name__ == "__main__":
    main()
