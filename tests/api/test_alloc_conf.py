"""PYTORCH_NPU_ALLOC_CONF, as a program meets it."""

from __future__ import annotations

import pytest
import torch

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


def test_max_split_size_keeps_a_large_block_for_large_requests(python):
    code = """
import torch
def empty(mib): return torch.empty(mib << 20, dtype=torch.uint8, device="npu")
address = empty(64).data_ptr()
small = empty(30)
print(small.data_ptr() == address, empty(64).data_ptr() == address)
"""
    assert python(code).stdout.split() == ["True", "False"]
    conf = {NAME: "max_split_size_mb:40"}
    assert python(code, **conf).stdout.split() == ["False", "True"]


def test_garbage_is_collected_before_memory_runs_out(python):
    code = """
import torch
def empty(mib): return torch.empty(mib << 20, dtype=torch.uint8, device="npu")
for mib in (60, 70, 80):
    empty(mib)
    torch.npu.synchronize()
stats = torch.npu.memory_stats()
print(stats["reserved_bytes.all.current"] >> 20, stats["num_alloc_retries"])
"""
    small = {"NPU_DISPATCH_MEMORY": "256M"}
    conf = {NAME: "garbage_collection_threshold:0.5"}
    assert python(code, **small).stdout.split() == ["210", "0"]
    assert python(code, **small, **conf).stdout.split() == ["150", "0"]


def test_sizes_are_rounded_to_divisions():
    torch.npu.memory._set_allocator_settings("roundup_power2_divisions:4")
    try:
        before = torch.npu.memory_allocated()
        x = torch.empty(5 * MIB + 1, dtype=torch.uint8, device="npu")
        assert torch.npu.memory_allocated() - before == 6 * MIB
        del x
    finally:
        torch.npu.memory._set_allocator_settings("")
    x = torch.empty(5 * MIB + 1, dtype=torch.uint8, device="npu")
    assert torch.npu.memory_allocated() - before == 5 * MIB + 512
    del x


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
