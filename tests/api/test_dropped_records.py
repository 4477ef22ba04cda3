"""A record that a failed stream drops ends what waits for it, with an error."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

# A regression hangs, so each of these is a program.
COMMON = """
import npu_dispatch, torch
npu = torch.npu
source = torch.ones(4, device="npu:0")
index = torch.tensor([9999], device="npu:0")
npu.synchronize()

class Failing:
    '''A stream that fails when the block ends: it takes records until then.'''
    def __init__(self, stream=None):
        self.stream, self.gate = stream or npu.Stream(0), npu.ExternalEvent()
    def __enter__(self):
        self.gate.wait(self.stream)
        with npu.stream(self.stream):
            source[index]
        return self.stream
    def __exit__(self, *exc):
        self.gate.record(npu.Stream(0))

def raises(call, *words):
    try:
        call()
    except npu.DeviceError as error:
        for word in ("was dropped", *words):
            assert word in str(error), (word, error)
    else:
        raise AssertionError("nothing was raised")

def until_failed(stream):
    try:
        stream.synchronize()
    except IndexError:
        return
    raise AssertionError("the stream has not failed")

def reset():
    for device in range(npu.device_count()):
        npu.reset_device(device)

def works(event, failed):
    '''The event, and the stream that had failed, work again.'''
    event.record(failed)
    event.wait(npu.Stream(0))
    npu.synchronize(0)
    if isinstance(event, npu.ExternalEvent):
        event.reset(failed)
        npu.synchronize(0)
"""

EXTERNAL = """
for device in (0, 1):
    y = torch.zeros(4, device=f"npu:{device}")
    waiting, event = npu.Stream(device), npu.ExternalEvent()
    npu.synchronize(device)
    for first in ("wait", "record"):
        with Failing() as failing:
            if first == "wait":
                event.wait(waiting)
            event.record(failing)
            if first == "record":
                event.wait(waiting)
            with npu.stream(waiting):
                y.add_(1)
        where = f"npu:0 stream {failing.stream_id} had failed: "
        raises(waiting.synchronize, "external", where, "out of bounds")
        reset()
        assert y.eq(0).all()
        works(event, failing)

# The stream has failed before: the record raises, and ends the wait.
event.wait(waiting)
with Failing() as failing:
    pass
until_failed(failing)
for _ in range(2):  # the second time nothing waits
    try:
        event.record(failing)
    except IndexError:
        continue
    raise AssertionError("the record did not raise")
raises(waiting.synchronize)
reset()
event.wait(waiting)
event.record(failing)
npu.synchronize(1)

# A dropped reset() does not leave an older record for the next wait.
event.record(npu.current_stream(0))
npu.synchronize(0)
with Failing() as failing:
    event.reset(failing)
until_failed(failing)
event.wait(waiting)
raises(waiting.synchronize)
reset()
works(event, failing)

# A stream without a queue raises in the call.
with Failing() as failing:
    event.record(failing)
raises(lambda: event.wait(npu.SyncLaunchStream(0)))
reset()
works(event, failing)
print("ok")
"""

INTERPROCESS = """
event, waiting = npu.Event(interprocess=True), npu.Stream(0)
with Failing() as failing:
    event.record(failing)
    event.wait(waiting)
for call in (waiting.synchronize, event.synchronize, event.query):
    raises(call, "interprocess", "out of bounds")
event.record(npu.default_stream(0))  # a later record of a stream that works
event.synchronize()
assert event.query()
reset()
works(event, failing)
print("ok")
"""

GRAPHS = """
def captured(lanes, after):
    '''A graph that fails for a bad index, and records an event behind that.'''
    graph, event, side = npu.NPUGraph(), npu.ExternalEvent(), npu.Stream(0)
    i = torch.tensor([1], device="npu:0")
    npu.synchronize(0)
    with npu.graph(graph):
        main = npu.current_stream(0)
        if lanes == 2:
            side.wait_stream(main)
            with npu.stream(side):
                source[i]
            if after == "joined":
                main.wait_stream(side)
            event.record(side if after == "side" else main)
            main.wait_stream(side)
        else:
            source[i]
            event.record(main)
    return graph, event, i

for lanes, after in ((1, ""), (2, "side"), (2, "joined")):
    graph, event, i = captured(lanes, after)
    i.fill_(9)
    npu.synchronize(0)
    a, b = npu.Stream(0), npu.Stream(0)
    gate, holds = npu.ExternalEvent(), npu.current_stream(0)
    gate.wait(holds)
    graph.replay()  # fails
    event.wait(a)
    graph.replay()  # is dropped whole
    gate.record(b)
    raises(a.synchronize, "external", "npu:0 stream ")
    reset()
    event.reset()
    i.fill_(1)
    event.wait(a)
    graph.replay()
    npu.synchronize(0)

# A replay that waits for a record fails where that is dropped.
graph, event = npu.NPUGraph(), npu.ExternalEvent()
y = torch.zeros(4, device="npu:0")
npu.synchronize(0)
with npu.graph(graph):
    event.wait()
    y.add_(1)
with Failing() as failing:
    event.record(failing)
    graph.replay()
raises(npu.current_stream(0).synchronize, "graph replay", "external")
reset()
assert y.eq(0).all()
print("ok")
"""


@pytest.mark.parametrize("program", ["EXTERNAL", "INTERPROCESS", "GRAPHS"])
def test_who_waits_for_a_dropped_record_fails_and_a_reset_returns(python, program: str):
    code = COMMON + globals()[program]

    assert python(code, NPU_DISPATCH_DEVICES="2").stdout.strip() == "ok"


def test_the_stop_of_a_device_ends_waits_of_another_for_its_records(python):
    code = f"""{COMMON}
waiting, event, gate = npu.Stream(1), npu.ExternalEvent(), npu.ExternalEvent()
gate.wait(npu.current_stream(0))
event.record(npu.current_stream(0))
event.wait(waiting)
npu.stop_device(0)
try:
    waiting.synchronize()
except RuntimeError as error:
    assert "FORCE STOP" in str(error), error
npu.restart_device(0)
npu.reset_device(1)
print("ok")
"""
    assert python(code, NPU_DISPATCH_DEVICES="2").stdout.strip() == "ok"


# Records the event on a stream that fails when it is told to.
CHILD = """
import sys, torch
event = torch.npu.Event.from_ipc_handle(0, bytes.fromhex(sys.argv[1]))
x, index = torch.ones(4).npu(), torch.tensor([9999]).npu()
torch.npu.synchronize()
gate = torch.npu.ExternalEvent()
gate.wait(torch.npu.current_stream())
x[index]
event.record()
print("recorded", flush=True)
sys.stdin.readline()
gate.record(torch.npu.Stream())
try:
    torch.npu.synchronize()
except IndexError:
    torch.npu.reset_device()
sys.stdin.readline()
"""


async def test_a_record_that_another_process_drops_ends_the_waits_here(
    child_environment,
):
    event = torch.npu.Event(interprocess=True)
    stream, direct = torch.npu.Stream(), torch.npu.SyncLaunchStream()
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, event.ipc_handle().hex()],
        env=child_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout.readline() == "recorded\n"
    event.wait(stream)
    assert not event.query()
    child.stdin.write("\n")
    child.stdin.flush()
    said = f"npu:0 stream 0 of process {child.pid} had failed"
    for wait in (
        stream.synchronize,
        event.synchronize,
        event.query,
        lambda: event.wait(direct),
    ):
        with pytest.raises(torch.npu.DeviceError, match=said):
            wait()
    with pytest.raises(torch.npu.DeviceError, match=said):
        await event
    torch.npu.reset_device()
    child.communicate("\n", timeout=60)
    assert child.returncode == 0
