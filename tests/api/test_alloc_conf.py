"""PYTORCH_NPU_ALLOC_CONF, as a program meets it."""

import pytest
import torch
from freed_inputs import INPUT_ENDS, REPLAYED_WITHOUT_INPUT

from npu_dispatch.npu.runtime.alloc_conf import parse

MIB = 1 << 20
NAME = "PYTORCH_NPU_ALLOC_CONF"


@pytest.mark.parametrize("first", ["torch.npu.init()", "torch.ones(1, device='npu')"])
def test_a_wrong_setting_is_told_at_the_first_use(python, first):
    code = f"""
import torch
assert torch.npu.memory_allocated() == 0 and torch.npu.is_available()
for _ in range(2):
    try: {first}
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


def test_settings_are_read_with_spaces_and_in_any_order():
    text = (
        " expandable_segments:True, max_split_size_mb:64 ,"
        "roundup_power2_divisions:[4:1, 16 : 2,>:8],backend:native,"
        "max_non_split_rounding_mb:21,per_process_memory_fraction:1"
    )
    assert parse(text) == {
        "expandable_segments": True,
        "max_split_size_mb": 64 * MIB,
        "roundup_power2_divisions": [1, 1, 1, 2, 2, *([8] * 11)],
        "backend": False,
        "max_non_split_rounding_mb": 21 * MIB,
        "per_process_memory_fraction": 1.0,
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((f"expandable_segments:{yes}", True) for yes in ("True", "true", "1")),
        *((f"expandable_segments:{no}", False) for no in ("False", "false", "0")),
        ("base_addr_aligned_kb:0", 0),
        ("base_addr_aligned_kb:16", 16),
        ("page_size:1g", 1 << 30),
        ("max_split_size_mb:21", 21 * MIB),
        ("max_split_size_mb:17592186044415", 17592186044415 * MIB),
        ("garbage_collection_threshold:0.001", 0.001),
        ("roundup_power2_divisions:2", [2] * 16),
        ("roundup_power2_divisions:[]", [0] * 16),
        ("roundup_power2_divisions:[2:4]", [4, 4, *([0] * 14)]),
        ("roundup_power2_divisions:[65536:4,>:2]", [4] * 16),
        ("segment_size_mb:40", 40),
    ],
)
def test_each_value_that_is_right_is_accepted(text, value):
    assert list(parse(f" , {text}").values()) == [value]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("max_split:64", "unknown key 'max_split'; the keys are max_split_size_mb, "),
        ("pinned_use_background_threads:3", "must be True or False, but got '3'"),
        ("pinned_free_catch_all:yes", "True or False"),
        ("pinned_num_register_threads:many", "must be a number, but got 'many'"),
        ("segment_size_mb:-1", "a number"),
        ("per_process_memory_fraction:1.01", "above 0 and at most 1"),
        ("per_process_memory_fraction:0", "above 0 and at most 1"),
        ("max_non_split_rounding_mb:20", "a number of MiB above 20"),
        ("max_split_size_mb:20", "a number of MiB above 20"),
        ("max_split_size_mb:64 MB", "but got '64 MB'"),
        ("max_split_size_mb:17592186044416", "a number of MiB above 20"),
        ("garbage_collection_threshold:0", "above 0 and below 1"),
        ("garbage_collection_threshold:1", "above 0 and below 1"),
        ("garbage_collection_threshold:nan", "above 0 and below 1"),
        ("garbage_collection_threshold:", "but got ''"),
        ("roundup_power2_divisions:3", "a power of two, or a list such as "),
        ("roundup_power2_divisions:0", "a power of two"),
        ("roundup_power2_divisions:[256:1,512:2", "but got '[256:1'"),
        ("roundup_power2_divisions:[3:2]", "a power of two"),
        ("roundup_power2_divisions:[4]", "a power of two"),
        ("roundup_power2_divisions:[x:4]", "a power of two"),
        ("roundup_power2_divisions:[4:3]", "a power of two"),
        ("base_addr_aligned_kb:17", "0 to 16"),
        ("page_size:4k", "must be 1g"),
        ("backend:cudaMallocAsync", "change_current_allocator()"),
        ("expandable_segments", "an entry must be key:value"),
        (":", "unknown key ''"),
    ],
)
def test_what_is_wrong_is_named_with_what_would_be_right(text, words):
    with pytest.raises(RuntimeError) as refused:
        parse(f"roundup_power2_divisions:4,{text}")
    assert str(refused.value).startswith(f"{NAME}: ")
    assert words in str(refused.value)


def test_keys_without_effect_are_named_once(python):
    code = """
import torch
torch.npu.init()
for _ in range(2):
    torch.npu.memory._set_allocator_settings("segment_size_mb:40,page_size:1g")
"""
    conf = {NAME: "segment_size_mb:20,release_lock_on_npumalloc:True"}
    said = [line for line in python(code, **conf).stderr.splitlines() if NAME in line]
    keys = [line.split()[2] for line in said]
    assert keys == ["segment_size_mb", "release_lock_on_npumalloc"]


@pytest.mark.parametrize("first", ["torch.Stream('npu')", "torch.npu.init()"])
def test_settings_hold_whatever_uses_the_device_first(python, first):
    code = f"""
import torch
{first}
torch.empty(5 * (1 << 20) + 1, dtype=torch.uint8, device="npu")
print(torch.npu.max_memory_allocated() >> 20)
"""
    found = python(code, **{NAME: "roundup_power2_divisions:4"})
    assert found.stdout.split() == ["6"]


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


BESIDE = {
    400: "behind the end of this memory of 400 bytes, at byte 400",
    911: "behind the end of this memory of 400 bytes, at byte 911",
    -1: "before the beginning of this memory of 400 bytes, 1 bytes",
    -512: "before the beginning of this memory of 400 bytes, 512 bytes",
}


@pytest.mark.parametrize("offset", [*BESIDE, 0, 399])
def test_a_write_beside_guarded_memory_is_an_error_of_its_stream(python, offset):
    code = GUARDED.replace("OFFSET", str(offset))
    said = python(code, **{NAME: "backend:guard"}).stdout
    told = said.removesuffix("True guard\n[2.0, 2.0, 2.0]\n")
    line = next(n for n, text in enumerate(code.splitlines(), 1) if "y = x" in text)
    assert told != said and bool(told) == (offset in BESIDE)
    assert not told or (BESIDE[offset] in told and f":{line} in <module>" in told)


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
