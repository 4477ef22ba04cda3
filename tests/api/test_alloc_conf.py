"""PYTORCH_NPU_ALLOC_CONF, as a program meets it."""

from __future__ import annotations

import pytest
import torch
from freed_inputs import INPUT_ENDS, REPLAYED_WITHOUT_INPUT

MIB = 1 << 20
NAME = "PYTORCH_NPU_ALLOC_CONF"


@pytest.mark.parametrize(
    "first_use", ["torch.npu.init()", "torch.ones(1, device='npu')"]
)
def test_a_wrong_setting_is_told_at_the_first_use(python, first_use):
    code = f"""
import torch
assert torch.npu.memory_allocated() == 0 and torch.npu.is_available()
for _ in range(2):
    try: {first_use}
    except RuntimeError as error: print(error)
"""
    lines = python(code, **{NAME: "max_split:1"}).stdout.splitlines()

    assert len(lines) == 2
    for line in lines:
        assert line.startswith(f"{NAME}: unknown key 'max_split'; the keys are")


def test_the_snapshot_says_what_is_set(python):
    conf = "max_split_size_mb:64,garbage_collection_threshold:0.5"
    code = """
import torch
torch.npu.init()
s = torch.npu.memory._snapshot()["allocator_settings"]
print(s["PYTORCH_NPU_ALLOC_CONF"], s["max_split_size"] >> 20,
      s["garbage_collection_threshold"], s["expandable_segments"])
print(torch.npu.memory_stats().get("max_split_size"))
torch.ones(1, device="npu")
print(torch.npu.memory_stats()["max_split_size"] >> 20)
"""
    found = python(code, **{NAME: conf}).stdout.splitlines()

    assert found == [f"{conf} 64 0.5 False", "None", "64"]


def test_refused_settings_change_nothing():
    for bad in ("garbage_collection_threshold:2", "no_such:1", "backend:other"):
        with pytest.raises(RuntimeError, match=NAME):
            torch.npu.memory._set_allocator_settings(
                f"roundup_power2_divisions:4,{bad}"
            )
    before = torch.npu.memory_allocated()
    x = torch.empty(5 * MIB + 1, dtype=torch.uint8, device="npu")
    assert torch.npu.memory_allocated() - before == 5 * MIB + 512
    del x


def test_virtual_devices_together_fit_into_the_host(python):
    code = """
import os, torch
n = torch.npu.device_count()
total = sum(torch.npu.mem_get_info(i)[1] for i in range(n))
print(n, total <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE") // 2)
"""
    for devices in (1, 4):
        found = python(code, NPU_DISPATCH_DEVICES=str(devices)).stdout.split()
        assert found == [str(devices), "True"]


GUARDED = """
import ctypes, torch
x = torch.ones(100, device="npu")
y = x + 1
torch.npu.synchronize()
ctypes.memset(y.data_ptr() + OFFSET, 7, 1)
del y  # the line that is not to blame
try:
    x.add_(1)
    torch.npu.synchronize()
except RuntimeError as error:
    print(error)
print(torch.npu.guard_allocator_enabled(), torch.npu.get_allocator_backend())
torch.npu.reset_device()
print((torch.ones(3, device="npu") + 1).tolist())
"""


@pytest.mark.parametrize(
    ("offset", "words"),
    [
        (400, "behind the end of this memory of 400 bytes, at byte 400"),
        (911, "behind the end of this memory of 400 bytes, at byte 911"),
        (-1, "before the beginning of this memory of 400 bytes, 1 bytes"),
        (-512, "before the beginning of this memory of 400 bytes, 512 bytes"),
    ],
)
def test_a_write_beside_guarded_memory_is_an_error_of_its_stream(python, offset, words):
    code = GUARDED.replace("OFFSET", str(offset))
    said = python(code, **{NAME: "backend:guard"}).stdout
    line = next(n for n, text in enumerate(code.splitlines(), 1) if "y = x" in text)
    assert words in said and f":{line} in <module>" in said
    assert said.splitlines()[-2:] == ["True guard", "[2.0, 2.0, 2.0]"]


@pytest.mark.parametrize("offset", [0, 399])
def test_a_write_to_guarded_memory_is_none(python, offset):
    code = GUARDED.replace("OFFSET", str(offset))
    found = python(code, **{NAME: "backend:guard"}).stdout.splitlines()
    assert found == ["True guard", "[2.0, 2.0, 2.0]"]


@pytest.mark.parametrize("end", INPUT_ENDS.values(), ids=INPUT_ENDS)
def test_a_replay_knows_that_guarded_memory_was_freed(python, end):
    code = REPLAYED_WITHOUT_INPUT.replace("END", end)
    assert python(code, **{NAME: "backend:guard"}).stdout.split() == ["9.0", "True"]


def test_guarded_memory_serves_streams_graphs_and_other_devices(python):
    code = """
import torch
torch.manual_seed(0)
x = torch.rand(1000, device="npu")
stream, graph = torch.npu.Stream(), torch.npu.NPUGraph()
wanted = x.cpu().sin().cumsum(0)
stream.wait_stream(torch.npu.current_stream())
with torch.npu.stream(stream):
    z = x.sin()
    x.record_stream(stream)
torch.npu.current_stream().wait_stream(stream)
z.record_stream(torch.npu.current_stream())
torch.testing.assert_close(z.cumsum(0).cpu(), wanted)
with torch.npu.graph(graph):
    y = x.sin().cumsum(0)
for _ in range(3):
    graph.replay()
    torch.testing.assert_close(y.cpu(), wanted)
other = x.to("npu:1")
torch.testing.assert_close(other.sin().cumsum(0).cpu(), wanted)
with torch.npu.use_mem_pool(torch.npu.MemPool()):
    torch.testing.assert_close(x.sin().cumsum(0).cpu(), wanted)
before = torch.npu.memory_allocated()
del z, other
torch.npu.synchronize()
print(before > torch.npu.memory_allocated() > 0, torch.npu.guard_allocator_enabled())
"""
    conf = {NAME: "backend:guard", "NPU_DISPATCH_DEVICES": "2"}
    assert python(code, **conf).stdout.split() == ["True", "True"]


def test_launches_that_block_tell_of_a_write_beside_memory(python):
    conf = {NAME: "backend:guard", "NPU_LAUNCH_BLOCKING": "1"}
    found = python(GUARDED.replace("OFFSET", "400"), **conf)
    assert "behind the end of this memory of 400 bytes" in found.stdout + found.stderr


def test_guarded_memory_cannot_be_asked_for_later(python):
    code = """
import torch
torch.ones(1, device="npu")
try: torch.npu.memory._set_allocator_settings("backend:guard")
except RuntimeError as error: print(error)
print(torch.npu.guard_allocator_enabled(), torch.npu.get_allocator_backend())
"""
    error, state = python(code).stdout.splitlines()
    assert "backend:guard" in error and "environment" in error
    assert state == "False native"


def test_without_guard_a_write_beside_memory_is_silent(python):
    found = python(GUARDED.replace("OFFSET", "400")).stdout.splitlines()
    assert found == ["False native", "[2.0, 2.0, 2.0]"]
