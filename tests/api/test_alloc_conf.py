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


def test_settings_of_other_allocators_are_accepted_and_named_once(python):
    conf = (
        "per_process_memory_fraction:0.5,pinned_use_background_threads:True,"
        "release_lock_on_npumalloc:True,multi_stream_lazy_reclaim:False"
    )
    code = """
import torch
torch.ones(1, device="npu")
torch.npu.memory._set_allocator_settings("multi_stream_lazy_reclaim:True")
try: torch.empty(200 << 20, dtype=torch.uint8, device="npu")
except torch.OutOfMemoryError as error: print(str(error))
"""
    result = python(code, NPU_DISPATCH_MEMORY="256M", **{NAME: conf})

    assert "may use at most 128.00 MiB" in result.stdout
    lines = result.stderr.splitlines()
    assert [line.split()[2] for line in lines] == [
        "pinned_use_background_threads",
        "release_lock_on_npumalloc",
        "multi_stream_lazy_reclaim",
    ]
    assert all(line.endswith("has no effect on this device") for line in lines)


def test_an_unknown_setting_names_the_nearest_known(python):
    code = "import torch; torch.npu.init()"
    result = python(code, check=False, **{NAME: "max_splitsize_mb:64"})

    assert result.returncode == 1
    assert "the nearest that is known is max_split_size_mb" in result.stderr


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
