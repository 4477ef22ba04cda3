"""`await` of an interprocess event, recorded here or in another process."""

from __future__ import annotations

import asyncio
import subprocess

import pytest
import torch

from npu_dispatch import aio


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


async def test_the_failure_of_the_work_before_it_is_raised(stream, gate):
    event = torch.npu.Event(interprocess=True)
    gate.close(stream)  # a stream that has failed takes no record
    with torch.npu.stream(stream):
        torch.zeros(2, device="npu")[torch.tensor([5]).npu()]
    event.record(stream)
    gate.open()

    with pytest.raises(torch.npu.DeviceError, match="out of bounds"):
        await event
    torch.npu.clear_error(stream)


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
