"""External streams and events, interprocess events, and records that are dropped."""

import ctypes
import os
import threading
from pathlib import Path
from subprocess import PIPE

import pytest
import torch
from open_waits import waiting


def runtime():
    return torch.npu.npurt()


def made() -> int:
    """A new stream's pointer, by the calling convention of torch_npu."""
    pointer = ctypes.c_void_p(0)
    assert runtime().npuStreamCreate(ctypes.addressof(pointer)) == 0
    assert pointer.value
    return pointer.value


def test_the_runtime_is_one_object_that_returns_codes_as_torch_npus_does(caplog):
    assert runtime() is runtime()

    for call in (runtime().npuStreamCreate, runtime().npuStreamDestroy):
        assert call(0) != 0
        assert "must not be null" in caplog.messages[-1]
    with pytest.raises(TypeError):
        runtime().npuStreamCreate()


def test_a_stream_is_made_on_the_current_device(python):
    code = """
import ctypes, torch
pointer = ctypes.c_void_p(0)
with torch.npu.device(1):
    torch.npu.npurt().npuStreamCreate(ctypes.addressof(pointer))
stream = torch.npu.ExternalStream(pointer.value)
print(stream.device.index, stream.npu_stream == pointer.value)
"""
    assert python(code, NPU_DISPATCH_DEVICES="2").stdout.split() == ["1", "True"]


def test_no_more_streams_are_made_than_there_are_and_each_ends_once(caplog):
    pointers = [made() for _ in range(32)]
    refused = ctypes.c_void_p(0)

    assert runtime().npuStreamCreate(ctypes.addressof(refused)) != 0
    assert refused.value is None
    assert "destroy one" in caplog.messages[-1]
    assert runtime().npuStreamDestroy(pointers[7]) == 0
    assert made() == pointers[7]
    assert runtime().npuStreamCreate(ctypes.addressof(refused)) != 0
    assert runtime().npuStreamDestroy(torch.npu.Stream().npu_stream) != 0

    for pointer in pointers:
        assert runtime().npuStreamDestroy(pointer) == 0
    assert runtime().npuStreamDestroy(pointers[0]) != 0
    assert "destroyed already" in caplog.messages[-1]


def test_an_external_stream_runs_work_in_order_with_others():
    pointer = made()
    stream = torch.npu.ExternalStream(pointer)
    x = torch.zeros(1000, device="npu")
    stream.wait_stream(torch.npu.current_stream())

    with torch.npu.stream(stream):
        for _ in range(10):
            x += 1
    event = stream.record_event()
    event.synchronize()

    assert stream.query()
    assert x.tolist() == [10] * 1000
    assert isinstance(stream, torch.npu.Stream)
    assert runtime().npuStreamDestroy(pointer) == 0


def test_equal_pointers_are_one_stream_also_of_the_pool_and_others_are_not():
    stream = torch.npu.Stream()
    first, second = made(), made()

    assert torch.npu.ExternalStream(first) == torch.npu.ExternalStream(first)
    assert torch.npu.ExternalStream(first) != torch.npu.ExternalStream(second)
    assert torch.npu.ExternalStream(stream.npu_stream) == stream
    for pointer in (first, second):
        runtime().npuStreamDestroy(pointer)


@pytest.mark.parametrize("pointer", [0, -1, 1 << 40, 31 << 5])
def test_a_pointer_to_no_stream_is_refused(pointer):
    with pytest.raises(RuntimeError, match=r"not be null|is not a|has no stream"):
        torch.npu.ExternalStream(pointer)


def test_an_external_event_lets_a_waiter_see_what_came_before_the_record():
    waiting, recording = torch.npu.Stream(), torch.npu.Stream()
    x = torch.zeros(1 << 20, device="npu")
    torch.npu.synchronize()
    event = torch.npu.ExternalEvent()
    event.wait(waiting)
    with torch.npu.stream(waiting):
        total = x.sum()
    assert not waiting.query()
    with torch.npu.stream(recording):
        x.fill_(1)
    event.record(recording)
    waiting.synchronize()

    assert total.item() == 1 << 20


def test_a_second_wait_is_refused_with_nothing_queued():
    stream, event = torch.npu.Stream(), torch.npu.ExternalEvent()
    event.wait(stream)

    with pytest.raises(RuntimeError, match="twice"):
        event.wait(stream)

    event.record()
    stream.synchronize()
    event.wait(stream)  # a record came between
    event.record()
    stream.synchronize()


def test_reset_takes_the_flag_down():
    stream, event = torch.npu.Stream(), torch.npu.ExternalEvent()
    event.record(stream)
    event.reset(stream)
    stream.synchronize()
    event.wait(stream)
    assert not stream.query()
    event.record(torch.npu.current_stream())
    stream.synchronize()


def test_the_flags_of_events_that_are_gone_are_used_again():
    stream = torch.npu.Stream()
    flags = set()
    for _ in range(2000):
        event = torch.npu.ExternalEvent()
        event.record()
        event.wait(stream)
        flags.add(event._flag)
        stream.synchronize()

    assert len(flags) < 1500


def test_a_flag_is_kept_while_queued_work_uses_it():
    stream, gate = torch.npu.Stream(), torch.npu.ExternalEvent()
    out = torch.zeros(1, device="npu")
    torch.npu.synchronize()
    event = torch.npu.ExternalEvent()
    gate.wait()
    event.record()
    event.wait(stream)
    with torch.npu.stream(stream):
        out.fill_(1)
    used = event._flag
    del event

    others = [torch.npu.ExternalEvent() for _ in range(300)]
    assert used not in {other._flag for other in others}
    for other in others:
        other.reset(stream)
    assert not stream.query()

    gate.record(torch.npu.Stream())
    stream.synchronize()
    assert out.item() == 1


def test_a_flag_that_a_graph_uses_is_kept_for_its_replays():
    graph, side = torch.npu.NPUGraph(), torch.npu.Stream()
    out = torch.zeros(1, device="npu")
    torch.npu.synchronize()
    event = torch.npu.ExternalEvent()
    with torch.npu.graph(graph):
        event.record()
        out.add_(1)
    used = event._flag
    del event
    others = [torch.npu.ExternalEvent() for _ in range(300)]
    assert used not in {other._flag for other in others}

    graph.replay()
    side.wait_stream(torch.npu.current_stream())
    side.synchronize()
    assert out.item() == 1


def test_a_wait_on_a_sync_launch_stream_lets_other_threads_run():
    stream, event = torch.npu.SyncLaunchStream(), torch.npu.ExternalEvent()
    before = waiting()
    thread = threading.Thread(target=event.wait, args=(stream,))
    thread.start()

    # This thread runs Python while the other is in the wait.
    while waiting() == before and thread.is_alive():
        pass
    assert thread.is_alive()
    event.record(torch.npu.default_stream())
    thread.join(timeout=30)

    assert not thread.is_alive() and waiting() == before


def test_a_process_ends_although_a_wait_is_never_answered(python):
    result = python("import torch; torch.npu.ExternalEvent().wait(); print('end')")

    assert result.stdout.strip() == "end"


WAITING_CHILD = """
import sys
import npu_dispatch, torch
event = torch.npu.Event.from_ipc_handle("npu:0", bytes.fromhex(sys.argv[1]))
stream = torch.npu.Stream()
event.wait(stream)
print(event.query(), stream.query(), flush=True)
stream.synchronize()
event.synchronize()
print(event.query(), flush=True)
event.record()
torch.npu.synchronize()
"""


def test_another_process_waits_for_an_interprocess_event(fresh_python):
    gate = torch.npu.ExternalEvent()
    event = torch.npu.Event(interprocess=True)
    stream = torch.npu.Stream()
    assert event.query() and event.npu_event == 0
    gate.wait(stream)
    event.record(stream)
    handle = event.ipc_handle()
    assert isinstance(event, torch.npu.Event) and isinstance(handle, bytes)

    child = fresh_python.start("-c", WAITING_CHILD, handle.hex(), stdout=PIPE)
    assert child.stdout.readline().split() == ["False", "False"]
    gate.record()
    assert child.stdout.readline().split() == ["True"]
    assert child.wait(60) == 0
    child.stdout.close()

    event.synchronize()  # the child has recorded it again
    torch.npu.default_stream().wait_event(event)
    torch.npu.synchronize()


def test_a_bad_handle_is_refused():
    with pytest.raises(RuntimeError, match="handle"):
        torch.npu.Event.from_ipc_handle(0, b"../../etc/passwd")
    with pytest.raises(RuntimeError, match="interprocess=True"):
        torch.npu.Event().ipc_handle()


def test_sleep_refuses_what_is_no_time():
    with pytest.raises(RuntimeError, match="must be positive"):
        torch.npu._sleep(0)


def test_strict_pools_refuse_to_hand_a_stream_out_twice(python):
    code = """
import npu_dispatch, torch
torch.npu.set_strict_stream_pools(True)
streams = [torch.npu.Stream() for _ in range(32)]
assert len(set(streams)) == 32
try:
    torch.npu.Stream()
except RuntimeError as error:
    print("32 streams" in str(error))
torch.npu.Stream(priority=-1)  # of another pool
torch.npu.set_strict_stream_pools(False)
assert torch.npu.Stream() in streams
"""
    assert python(code).stdout.strip() == "True"


def test_the_preprocessing_flag_belongs_to_its_stream():
    stream = torch.npu.Stream()
    stream.set_data_preprocess_stream(True)

    assert stream.is_data_preprocess_stream
    assert not torch.npu.current_stream().is_data_preprocess_stream
    with pytest.raises(TypeError, match="must be a bool"):
        stream.set_data_preprocess_stream(1)
    stream.set_data_preprocess_stream(False)
    assert not stream.is_data_preprocess_stream


def test_an_external_streams_priority_is_its_makers():
    pointer = torch.npu.Stream().npu_stream

    for asked in ({"priority": -1}, {"is_sync_launch": True}):
        with pytest.raises(RuntimeError, match="belong to the stream"):
            torch.npu.ExternalStream(pointer, **asked)


def test_ipc_collect_removes_what_a_killed_process_left(fresh_python):
    code = """
import os, signal
import npu_dispatch, torch
event = torch.npu.Event(interprocess=True)
name = event.ipc_handle().decode()
print(name, os.path.exists(f"/dev/shm/{name}"), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    mine = torch.npu.Event(interprocess=True)
    name, was_there = fresh_python(code, check=False).stdout.split()

    torch.npu.ipc_collect()

    assert was_there == "True"
    assert not (Path("/dev/shm") / name).exists()
    assert (Path("/dev/shm") / os.fsdecode(mine.ipc_handle())).is_file()


def test_ipc_collect_leaves_the_events_of_other_containers():
    """Which may share /dev/shm, and whose process numbers mean nothing here."""
    theirs = Path(f"/dev/shm/npu_event-999999999-1-{os.getpid()}")
    theirs.touch(0o600)
    try:
        torch.npu.ipc_collect()

        assert theirs.is_file()
    finally:
        theirs.unlink()


# A regression hangs, so each of these is a program.
COMMON = """
import pytest, torch
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
    with pytest.raises(npu.DeviceError) as told:
        call()
    for word in ("was dropped", *words):
        assert word in str(told.value), (word, told.value)
def until_failed(stream):
    with pytest.raises(IndexError):
        stream.synchronize()
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
    with pytest.raises(IndexError):
        event.record(failing)
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
    npu.synchronize(0)  # stream a waits for the next record, so after the reset
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
"""


STOPPED = """
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
"""
ENDED = {
    "external events": EXTERNAL,
    "interprocess events": INTERPROCESS,
    "graphs": GRAPHS,
    "the stop of another device": STOPPED,
}


@pytest.mark.parametrize("program", ENDED)
def test_who_waits_for_a_dropped_record_fails_and_a_reset_returns(python, program: str):
    code = COMMON + ENDED[program]

    python(code, NPU_DISPATCH_DEVICES="2")


# Records the event on a stream that fails when it is told to.
DROPPING_CHILD = """
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


async def test_a_record_that_another_process_drops_ends_the_waits_here(fresh_python):
    event = torch.npu.Event(interprocess=True)
    stream, direct = torch.npu.Stream(), torch.npu.SyncLaunchStream()
    child = fresh_python.start(
        *("-c", DROPPING_CHILD, event.ipc_handle().hex()), stdin=PIPE, stdout=PIPE
    )
    assert child.stdout.readline() == "recorded\n"
    event.wait(stream)
    assert not event.query()
    child.stdin.write("\n")
    child.stdin.flush()
    said = f"npu:0 stream 0 of process {child.pid} had failed"
    waits = stream.synchronize, event.synchronize, event.query
    for wait in (*waits, lambda: event.wait(direct)):
        with pytest.raises(torch.npu.DeviceError, match=said):
            wait()
    with pytest.raises(torch.npu.DeviceError, match=said):
        await event
    torch.npu.reset_device()
    child.communicate("\n", timeout=60)
    assert child.returncode == 0
