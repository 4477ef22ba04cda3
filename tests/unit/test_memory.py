"""torch.npu memory: counters, and memory without a tensor."""

import warnings

import pytest
import torch


def test_allocated_grows_by_the_rounded_size_and_falls_on_del():
    before = torch.npu.memory_allocated()

    x = torch.empty(1000, dtype=torch.uint8, device="npu")
    during = torch.npu.memory_allocated()
    del x

    assert during - before == 1024
    assert torch.npu.memory_allocated() == before


def test_a_queued_task_does_not_hold_memory():
    x = torch.ones(512, 512, device="npu")
    before = torch.npu.memory_allocated()

    for _ in range(20):
        y = x @ x
        del y

    assert torch.npu.memory_allocated() == before


def test_peak_does_not_depend_on_timing():
    x = torch.ones(256, 256, device="npu")
    peaks = set()

    for _ in range(3):
        torch.npu.reset_peak_memory_stats()
        base = torch.npu.memory_allocated()
        assert torch.npu.max_memory_allocated() == base
        for _ in range(10):
            torch.softmax(x @ x, 0)
        peaks.add(torch.npu.max_memory_allocated() - base)

    assert len(peaks) == 1


def test_stats_are_flat_sorted_and_have_torchs_keys():
    stats = torch.npu.memory_stats()

    assert list(stats) == sorted(stats)
    for group in ("allocated_bytes", "reserved_bytes", "active", "segment"):
        for pool in ("all", "small_pool", "large_pool"):
            for leaf in ("current", "peak", "allocated", "freed"):
                assert f"{group}.{pool}.{leaf}" in stats
    nested = torch.npu.memory_stats_as_nested_dict()
    assert nested["allocation"]["all"]["peak"] == stats["allocation.all.peak"]
    assert torch.npu.memory_summary(abbreviated=True)


def test_the_snapshot_lists_a_live_block():
    x = torch.empty(3000, dtype=torch.uint8, device="npu")

    blocks = {
        block["address"]: block
        for segment in torch.npu.memory_snapshot()
        for block in segment["blocks"]
    }

    assert blocks[x.data_ptr()]["state"] == "active_allocated"
    assert blocks[x.data_ptr()]["requested_size"] == 3000


def test_the_fraction_limits_this_process():
    total = torch.npu.mem_get_info()[1]
    torch.npu.set_per_process_memory_fraction(0.001)
    try:
        assert torch.npu.get_per_process_memory_fraction() == pytest.approx(0.001)
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(int(total * 0.002), dtype=torch.uint8, device="npu")
    finally:
        torch.npu.set_per_process_memory_fraction(1.0)


@pytest.mark.parametrize(
    ("fraction", "error"), [(1, TypeError), (1.5, ValueError), (-0.1, ValueError)]
)
def test_a_bad_fraction_is_refused(fraction, error):
    with pytest.raises(error, match=r"must be a float|Invalid fraction"):
        torch.npu.set_per_process_memory_fraction(fraction)


def test_old_names_warn_and_work():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cached = torch.npu.memory_cached()

    assert cached == torch.npu.memory_reserved()
    assert [warning.category for warning in caught] == [DeprecationWarning]


def test_counters_are_zero_before_initialisation(python):
    code = """
import npu_dispatch, torch
npu = torch.npu
print(npu.memory_allocated(), npu.max_memory_reserved(), dict(npu.memory_stats()))
print(npu.memory_snapshot(), "Peak" in npu.memory_summary(), npu.is_initialized())
"""
    lines = python(code).stdout.splitlines()

    assert lines == ["0 0 {}", "[] True False"]


def test_raw_memory_is_counted_and_given_back():
    before = torch.npu.memory_allocated()
    stream = torch.npu.Stream()

    first = torch.npu.caching_allocator_alloc(1000)
    second = torch.npu.caching_allocator_alloc(1000, stream=stream)
    third = torch.npu.caching_allocator_alloc(1000, 0, stream.npu_stream)

    assert torch.npu.memory_allocated() == before + 3 * 1024
    assert len({first, second, third, 0}) == 4
    for pointer in (first, second, third):
        torch.npu.caching_allocator_delete(pointer)
    assert torch.npu.memory_allocated() == before


def test_raw_memory_refuses_what_it_cannot_do():
    assert torch.npu.caching_allocator_alloc(0) == 0
    torch.npu.caching_allocator_delete(0)
    x = torch.ones(4, device="npu")
    alloc = torch.npu.caching_allocator_alloc
    delete = torch.npu.caching_allocator_delete
    for error, words, call in (
        (RuntimeError, "invalid device pointer", lambda: delete(12345)),
        (RuntimeError, "invalid device pointer", lambda: delete(x.data_ptr())),
        (RuntimeError, "invalid device pointer", lambda: delete(-8)),
        (TypeError, "mem_ptr", lambda: delete("x")),
        (OverflowError, "does not fit", lambda: alloc(1 << 70)),
        (RuntimeError, "not a stream of npu:0", lambda: alloc(8, stream=5 << 32)),
        (TypeError, "stream must be", lambda: alloc(8, stream="s")),
        (RuntimeError, "cannot allocate -1", lambda: alloc(-1)),
        (torch.OutOfMemoryError, "PYTORCH_NPU_ALLOC_CONF", lambda: alloc(1 << 50)),
    ):
        with pytest.raises(error, match=words):
            call()


def test_free_memory_excludes_what_other_processes_hold(python):
    # Others on the machine hold and let go as they like, but not in every round.
    code = """
import subprocess, sys
import npu_dispatch, torch
torch.npu.init()
child = subprocess.Popen([sys.executable, "-c", '''
import npu_dispatch, torch
while True:
    print(torch.npu.memory_reserved(), flush=True)
    if input() == "hold":
        x = torch.ones(64 << 20, dtype=torch.uint8, device="npu")
        torch.npu.synchronize()
    else:
        x = None
        torch.npu.empty_cache()
'''], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
def told(order):
    print(order, file=child.stdin, flush=True)
    return int(child.stdout.readline())
assert int(child.stdout.readline()) == 0
for _ in range(100):
    free = torch.npu.mem_get_info()[0]
    held = told("hold")
    assert held >= 64 << 20
    excluded = free - torch.npu.mem_get_info()[0]
    text = torch.npu.list_gpu_processes()
    first, *lines = text.splitlines()
    assert first == "NPU:0"
    assert any(str(child.pid) in line and "MB" in line for line in lines)
    assert told("let go") == 0
    if excluded == held:
        print("excluded")
        break
child.kill()
"""
    assert python(code).stdout.strip() == "excluded"
