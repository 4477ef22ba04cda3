"""Devices: how many, which one, and what they say about themselves."""

import sys

import pytest
import torch

from npu_dispatch import npu
from npu_dispatch.npu import DeferredNpuCallError


def test_torch_npu_is_our_module():
    assert torch.npu is sys.modules["torch.npu"] is npu


def test_negative_indices_change_nothing():
    torch.npu.set_device(-1)
    with torch.npu.device(-1):
        assert torch.npu.current_device() == 0


def test_properties_name_the_device():
    properties = torch.npu.get_device_properties(0)

    assert properties.name == torch.npu.get_device_name()
    assert properties.multi_processor_count == properties.vector_core_num
    assert len(properties.uuid.bytes) == 16
    assert properties.major is None


def test_capability_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("TORCH_NPU_DEVICE_CAPABILITY", "9.0")

    assert torch.npu.get_device_capability() == (9, 0)


def test_capability_is_none_with_a_warning():
    with pytest.warns(UserWarning, match="compute capability"):
        assert torch.npu.get_device_capability() is None


def test_what_a_virtual_device_has_not():
    assert not torch.npu.can_device_access_peer(0, 0)
    assert torch.npu.get_arch_list() == ["virtual"]
    assert torch.npu.get_gencode_flags() == ""
    with pytest.warns(UserWarning):
        assert torch.npu.current_blas_handle() is None


def test_switching_devices(python):
    code = """
import npu_dispatch, torch
npu = torch.npu
assert npu.device_count() == 2
with npu.device(1):
    assert npu.current_device() == 1
    x = torch.ones(2, device="npu")
assert x.device == torch.device("npu:1") and npu.current_device() == 0
with npu.device_of(x):
    assert npu.current_device() == 1
with npu.device("npu:1"):
    s = npu.Stream()
assert s.device.index == 1
s.wait_stream(npu.default_stream(1))
with npu.stream(s):
    assert npu.current_device() == 1 and npu.current_stream() == s
    y = x + 1
npu.current_stream(1).wait_stream(s)
assert npu.current_device() == 0
assert npu.current_stream(1) == npu.default_stream(1)
assert y.to("npu:0").device.index == 0 and y.to("npu:0").tolist() == [2, 2]
assert npu.can_device_access_peer(0, 1)
npu.manual_seed_all(4)
assert [g.initial_seed() for g in npu.default_generators] == [4, 4]
npu.synchronize(1)
one = npu.device(1)
with one:
    with one:  # entered again inside itself
        npu.set_device(0)
    assert npu.current_device() == 1
assert npu.current_device() == 0 and one.idx == 1
"""
    python(code, NPU_DISPATCH_DEVICES="2")


def test_queued_calls_run_at_initialisation_in_order(python):
    code = """
import npu_dispatch, torch
npu, seen = torch.npu, []
npu._lazy_call(lambda: seen.append(1))
npu._lazy_call(lambda: seen.append(2))
assert seen == []
npu.init()
npu._lazy_call(lambda: seen.append(3))
print(seen)
"""
    assert python(code).stdout.strip() == "[1, 2, 3]"


def test_a_failing_queued_call_is_named(python):
    code = """
import npu_dispatch, torch
from npu_dispatch.npu import DeferredNpuCallError
torch.npu._lazy_call(lambda: 1 / 0)
try:
    torch.npu.init()
except DeferredNpuCallError as error:
    print(type(error.__cause__).__name__, error)
"""
    said = python(code).stdout
    assert said.startswith("ZeroDivisionError") and "division by zero" in said
    assert issubclass(DeferredNpuCallError, RuntimeError)


def test_without_a_device_counters_are_zero_and_objects_are_refused(python):
    code = """
import pytest, torch
npu = torch.npu
assert not npu.is_available() and npu.device_count() == 0
torch.manual_seed(1)
for name in ("memory_allocated", "memory_reserved"):
    assert getattr(npu, name)() == getattr(npu, f"max_{name}")() == 0
assert npu.memory_stats() == {} == npu.memory_stats_as_nested_dict()
assert npu.memory_snapshot() == [] and "Allocated memory" in npu.memory_summary()
assert npu.get_arch_list() == [] and npu.get_gencode_flags() == ""
assert npu.default_generators == () and npu.get_rng_state_all() == []
npu.manual_seed_all(1); npu.seed(); npu.empty_cache(); npu.nvtx.mark("m")
for make in (npu.Stream, npu.Event, npu.NPUGraph, npu.ExternalEvent,
             npu.SyncLaunchStream, npu.init, npu.mem_get_info, npu.utilization,
             lambda: torch.ones(1, device="npu")):
    with pytest.raises(RuntimeError, match="No NPU devices"):
        make()
with pytest.raises(TypeError):
    npu.FloatTensor(1)
assert not npu.is_initialized()
"""
    python(code, NPU_DISPATCH_DEVICES="0")


def test_other_threads_do_not_overtake_queued_calls(python):
    code = """
import threading
import npu_dispatch, torch
npu, inside, go = torch.npu, threading.Event(), threading.Event()
def last():
    npu.init()  # the device is up: a queued call may use it
    inside.set()
    go.wait()
    assert torch.ones(1, device="npu").item() == 1
npu._lazy_call(last)
first = threading.Thread(target=npu.init)
first.start()
inside.wait()
second = threading.Thread(target=npu.current_stream)
second.start()
second.join(0.3)
overtook = not second.is_alive()
go.set()
first.join()
second.join()
print(overtook)
"""
    assert python(code).stdout.strip() == "False"
