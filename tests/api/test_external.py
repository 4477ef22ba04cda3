"""External streams and events, interprocess events, strict pools, priorities."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading

import pytest
import torch
from open_waits import waiting


@pytest.fixture
def runtime():
    return torch.npu.npurt()


def made(runtime) -> int:
    """A new stream's pointer, by the calling convention of torch_npu."""
    pointer = ctypes.c_void_p(0)
    assert runtime.npuStreamCreate(ctypes.addressof(pointer)) == 0
    assert pointer.value
    return pointer.value


def test_the_runtime_is_one_object_that_returns_codes_as_torch_npus_does(caplog):
    runtime = torch.npu.npurt()
    assert runtime is torch.npu.npurt()

    for call in (runtime.npuStreamCreate, runtime.npuStreamDestroy):
        assert call(0) != 0
        assert "must not be null" in caplog.messages[-1]
    with pytest.raises(TypeError):
        runtime.npuStreamCreate()


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


def test_no_more_streams_are_made_than_there_are(runtime, caplog):
    pointers = [made(runtime) for _ in range(32)]
    refused = ctypes.c_void_p(0)

    assert runtime.npuStreamCreate(ctypes.addressof(refused)) != 0
    assert refused.value is None
    assert "destroy one" in caplog.messages[-1]

    for pointer in pointers:
        assert runtime.npuStreamDestroy(pointer) == 0


def test_an_external_stream_runs_work_in_order_with_others(runtime):
    pointer = made(runtime)
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
    assert runtime.npuStreamDestroy(pointer) == 0


def test_equal_pointers_are_one_stream_and_others_are_not(runtime):
    first, second = made(runtime), made(runtime)

    assert torch.npu.ExternalStream(first) == torch.npu.ExternalStream(first)
    assert torch.npu.ExternalStream(first) != torch.npu.ExternalStream(second)
    for pointer in (first, second):
        runtime.npuStreamDestroy(pointer)


def test_a_stream_of_the_pool_is_an_external_stream_too():
    stream = torch.npu.Stream()

    assert torch.npu.ExternalStream(stream.npu_stream) == stream


@pytest.mark.parametrize("pointer", [0, -1, 1 << 40, 31 << 5])
def test_a_pointer_to_no_stream_is_refused(pointer):
    with pytest.raises(RuntimeError, match=r"not be null|is not a|has no stream"):
        torch.npu.ExternalStream(pointer)


def test_a_destroyed_stream_cannot_be_destroyed_again(runtime, caplog):
    pointer = made(runtime)
    assert runtime.npuStreamDestroy(pointer) == 0

    assert runtime.npuStreamDestroy(pointer) != 0
    assert "destroyed already" in caplog.messages[-1]


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
    result = python(
        "import npu_dispatch, torch; torch.npu.ExternalEvent().wait(); print('end')"
    )

    assert result.stdout.strip() == "end"


CHILD = """
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


def test_another_process_waits_for_an_interprocess_event(child_environment):
    gate = torch.npu.ExternalEvent()
    event = torch.npu.Event(interprocess=True)
    stream = torch.npu.Stream()
    assert event.query() and event.npu_event == 0
    gate.wait(stream)
    event.record(stream)
    handle = event.ipc_handle()
    assert isinstance(event, torch.npu.Event) and isinstance(handle, bytes)

    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, handle.hex()],
        env=child_environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
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
