"""Live calls: devices, streams, events, graphs and memory."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
import warnings
from pathlib import Path

import torch
from held_stream import Held
from live_calls import MIB, bytes_of, calls, child, filled, npu


@calls("init", "is_initialized", "is_available", "device_count")
def initialisation() -> None:
    code = "print(npu.is_initialized()); npu.init(); print(npu.is_initialized())"
    assert child(code).split() == ["False", "True"]
    assert npu.is_available() and npu.device_count() >= 1


@calls("current_device", "set_device", "device", "device_ctx_manager", "device_of")
def devices() -> None:
    npu.set_device(0)
    assert npu.current_device() == 0
    for context in (npu.device(0), npu.device_ctx_manager(0), npu.device_of(filled(1))):
        with context:
            assert npu.current_device() == 0


@calls("synchronize", "Stream.synchronize", "Stream.query")
def waiting() -> None:
    stream = npu.Stream()
    for wait in (npu.synchronize, stream.synchronize):
        with Held(stream):
            assert not stream.query()
        wait()
        assert stream.query()


@calls("get_device_name", "get_device_properties", "get_arch_list", "get_gencode_flags")
def facts_about_the_device() -> None:
    properties = npu.get_device_properties()
    assert properties.name == npu.get_device_name(0)
    assert properties.total_memory == npu.mem_get_info()[1]
    assert len(npu.get_arch_list()) == 1 and npu.get_gencode_flags() == ""


@calls("get_device_capability")
def capability() -> None:
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        assert npu.get_device_capability() is None
    code = "import os; os.environ['TORCH_NPU_DEVICE_CAPABILITY'] = '8.6'\n"
    assert child(code + "print(npu.get_device_capability())") == "(8, 6)"


@calls("can_device_access_peer", "current_blas_handle", "ipc_collect")
def peers_and_handles() -> None:
    assert npu.can_device_access_peer(0, 0) is False
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert npu.current_blas_handle() is None
    assert caught and npu.ipc_collect() is None


@calls("get_sync_debug_mode", "set_sync_debug_mode")
def sync_debug() -> None:
    x = filled(1)
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        npu.set_sync_debug_mode("error")
    try:
        assert npu.get_sync_debug_mode() == 2
        try:
            x.sum().item()
        except RuntimeError:
            pass
        else:
            raise AssertionError("item() was let through")
    finally:
        npu.set_sync_debug_mode(0)


@calls("OutOfMemoryError")
def out_of_memory() -> None:
    try:
        bytes_of(1 << 50)
    except npu.OutOfMemoryError as error:
        assert "PYTORCH_NPU_ALLOC_CONF" in str(error)
    else:
        raise AssertionError("there is no such memory")


@calls("utilization", "memory_usage", "temperature", "power_draw", "clock_rate")
def sensors() -> None:
    assert 0 <= npu.utilization() <= 100 and 0 <= npu.memory_usage() <= 100
    assert 20 <= npu.temperature() <= 100 and npu.power_draw() >= 1000
    assert 100 <= npu.clock_rate() <= 10_000


@calls("list_gpu_processes", "mem_get_info")
def memory_of_all_processes() -> None:
    kept = bytes_of(4 * MIB)
    assert npu.list_gpu_processes(0).startswith("NPU:0\n")
    free, total = npu.mem_get_info(0)
    assert 0 <= free <= total - kept.nbytes


@calls("Stream", "current_stream", "default_stream", "set_stream", "stream")
def streams() -> None:
    stream, before = npu.Stream(), npu.current_stream()
    assert stream != before == npu.default_stream() and before.stream_id == 0
    with npu.stream(stream):
        assert npu.current_stream() == stream
    npu.set_stream(stream)
    assert npu.current_stream() == stream
    npu.set_stream(before)


@calls("StreamContext", "SyncLaunchStream")
def other_streams() -> None:
    stream = npu.SyncLaunchStream()
    with npu.StreamContext(stream):
        x = filled(2) * 3
        assert npu.current_stream().stream_id == stream.stream_id
    assert stream.query() and x.tolist() == [6] * 4


@calls("ExternalStream")
def external_stream() -> None:
    pointer = ctypes.c_void_p(0)
    assert npu.npurt().npuStreamCreate(ctypes.addressof(pointer)) == 0
    with npu.stream(npu.ExternalStream(pointer.value)):
        assert (filled(1) + 1).tolist() == [2] * 4
    assert npu.npurt().npuStreamDestroy(pointer.value) == 0


@calls("Stream.wait_event", "Stream.wait_stream", "Stream.record_event")
def order_between_streams() -> None:
    first, second = npu.Stream(), npu.Stream()
    x = torch.zeros(4, device="npu")
    first.wait_stream(npu.current_stream())
    with npu.stream(first):
        npu._sleep(5_000_000)
        x.add_(1)
    second.wait_event(first.record_event())
    with npu.stream(second):
        y = x * 2
    second.synchronize()
    assert y.tolist() == [2] * 4


@calls("Event", "Event.record", "Event.wait", "Event.query", "Event.synchronize")
def events() -> None:
    stream, event = npu.Stream(), npu.Event()
    with Held(stream):
        event.record(stream)
        assert not event.query()
    event.wait(npu.current_stream())
    event.synchronize()
    assert event.query()


@calls("Event.elapsed_time", "Event.recorded_time")
def times() -> None:
    first, second = (npu.Event(enable_timing=True) for _ in range(2))
    first.record()
    npu._sleep(2_000_000)
    second.record()
    assert first.elapsed_time(second) >= 2
    assert second.recorded_time() - first.recorded_time() >= 2_000_000


@calls("Event.ipc_handle")
def shared_event() -> None:
    event = npu.Event(interprocess=True)
    event.record()
    again = npu.Event.from_ipc_handle(0, event.ipc_handle())
    again.synchronize()
    assert again.query()


@calls(
    "ExternalEvent", "ExternalEvent.record", "ExternalEvent.wait", "ExternalEvent.reset"
)
def external_event() -> None:
    stream, event = npu.Stream(), npu.ExternalEvent()
    event.record()
    event.reset()
    npu.synchronize()
    event.wait(stream)
    assert not stream.query()
    event.record()
    stream.synchronize()


@calls("is_current_stream_capturing", "graph_pool_handle", "graph", "NPUGraph")
def graphs() -> None:
    x, graph = filled(1), npu.NPUGraph()
    assert npu.graph_pool_handle() != npu.graph_pool_handle()
    with npu.graph(graph, pool=npu.graph_pool_handle()):
        assert npu.is_current_stream_capturing()
        y = x + 1
    assert not npu.is_current_stream_capturing()
    x.fill_(5)
    graph.replay()
    assert y.tolist() == [6] * 4


@calls(
    *(f"NPUGraph.{name}" for name in ("capture_begin", "capture_end", "debug_dump")),
    *(f"NPUGraph.{name}" for name in ("pool", "replay", "reset")),
)
def graph_by_hand() -> None:
    x, graph = filled(1), npu.NPUGraph()
    npu.synchronize()
    with npu.stream(npu.Stream()):
        graph.capture_begin()
        x.add_(1)
        graph.capture_end()
        graph.replay()
        graph.replay()
        npu.current_stream().synchronize()
    assert x.tolist() == [3] * 4 and len(graph.pool()) == 2
    with tempfile.TemporaryDirectory() as folder:
        graph.debug_dump(f"{folder}/graph.json")
        assert "add_" in Path(folder, "graph.json").read_text()
    graph.reset()


@calls("make_graphed_callables")
def graphed() -> None:
    model = torch.nn.Linear(4, 4).npu()
    x = torch.rand(2, 4, device="npu", requires_grad=True)
    expected = model(x).detach()
    model = npu.make_graphed_callables(model, (x,))
    y = model(x)
    y.sum().backward()
    torch.testing.assert_close(y.detach().cpu(), expected.cpu())
    assert x.grad is not None


@calls(
    *(f"graph_task_group_{end}" for end in ("begin", "end")),
    *(f"graph_task_update_{end}" for end in ("begin", "end")),
)
def graph_updates() -> None:
    x, y = filled(3), torch.zeros(4, device="npu")
    graph, stream, other = npu.NPUGraph(), npu.Stream(), npu.Stream()
    event = npu.ExternalEvent()
    npu.synchronize()
    with npu.graph(graph, stream=stream):
        event.wait(stream)
        event.reset(stream)
        npu.graph_task_group_begin(stream)
        torch.mul(x, 2.0, out=y)
        handle = npu.graph_task_group_end(stream)
    with npu.stream(other):
        npu.graph_task_update_begin(other, handle)
        torch.mul(x, 10.0, out=y)
        npu.graph_task_update_end(other)
        event.record(other)
    graph.replay()
    assert y.tolist() == [30] * 4


@calls("caching_allocator_alloc", "caching_allocator_delete", "memory_allocated")
def raw_memory() -> None:
    before = npu.memory_allocated()
    pointer = npu.caching_allocator_alloc(1000)
    assert npu.memory_allocated() == before + 1024
    npu.caching_allocator_delete(pointer)
    assert npu.memory_allocated() == before


@calls("empty_cache", "memory_reserved", "memory_cached")
def reserved() -> None:
    npu.empty_cache()
    bytes_of(64 * MIB)
    before = npu.memory_reserved()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert npu.memory_cached() == before
    npu.empty_cache()
    assert npu.memory_reserved() <= before - 64 * MIB


@calls("max_memory_allocated", "max_memory_reserved", "max_memory_cached")
def peaks() -> None:
    npu.reset_peak_memory_stats()
    before = npu.memory_allocated()
    bytes_of(32 * MIB)
    assert npu.max_memory_allocated() >= before + 32 * MIB
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert npu.max_memory_cached() == npu.max_memory_reserved() >= 32 * MIB


@calls(
    "reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached"
)
def resets() -> None:
    for name in ("peak_memory_stats", "max_memory_allocated", "max_memory_cached"):
        bytes_of(8 * MIB)
        assert npu.max_memory_allocated() > npu.memory_allocated()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            getattr(npu, f"reset_{name}")()
        assert npu.max_memory_allocated() == npu.memory_allocated()


@calls("set_per_process_memory_fraction")
def fraction() -> None:
    assert npu.get_per_process_memory_fraction() == 1.0
    code = """
npu.set_per_process_memory_fraction(0.001)
try: torch.empty(npu.mem_get_info()[1] // 100, dtype=torch.uint8, device="npu")
except torch.OutOfMemoryError: print("out of memory")
"""
    assert child(code) == "out of memory"


@calls("memory_stats", "memory_summary", "memory_snapshot")
@calls("memory_stats_as_nested_dict", "reset_accumulated_memory_stats")
def descriptions_of_memory() -> None:
    x = bytes_of(5 * MIB)
    assert npu.memory_stats()["allocated_bytes.all.current"] == npu.memory_allocated()
    npu.reset_accumulated_memory_stats()
    y = bytes_of(5 * MIB)
    nested = npu.memory_stats_as_nested_dict()
    assert nested["allocated_bytes"]["all"]["allocated"] == y.nbytes
    assert "Allocated memory" in npu.memory_summary()
    blocks = [block for s in npu.memory_snapshot() for block in s["blocks"]]
    assert [b["size"] for b in blocks if b["address"] == x.data_ptr()] == [x.nbytes]


ALLOCATOR = """
#include <stdlib.h>
void* take(size_t n, int device, void* stream) {
  (void)device; (void)stream;
  return aligned_alloc(512, (n + 511) / 512 * 512);
}
void give(void* p, size_t n, int device, void* stream) {
  (void)n; (void)device; (void)stream; free(p);
}
"""


@calls("get_allocator_backend", "NPUPluggableAllocator", "change_current_allocator")
def allocators() -> None:
    assert npu.get_allocator_backend() == "native"
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/take.so"
        compile_c = ["cc", "-shared", "-fPIC", "-xc", "-", "-o", library]
        subprocess.run(compile_c, input=ALLOCATOR, text=True, check=True)
        code = f"""
a = npu.NPUPluggableAllocator({library!r}, "take", "give")
npu.change_current_allocator(a)
assert torch.ones(3, device="npu").sum().item() == 3
print(npu.get_allocator_backend(), npu.memory_allocated())
"""
        assert child(code) == "pluggable 0"
