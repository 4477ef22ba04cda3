"""torch.npu memory counters: exact, and independent of when work runs."""

from __future__ import annotations

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


def test_empty_cache_gives_unused_memory_back():
    torch.npu.empty_cache()
    before = torch.npu.memory_reserved()
    x = torch.empty(30 << 20, dtype=torch.uint8, device="npu")
    assert torch.npu.memory_reserved() >= before + x.nbytes
    del x

    torch.npu.empty_cache()

    assert torch.npu.memory_reserved() <= before


def test_the_snapshot_lists_a_live_block():
    x = torch.empty(3000, dtype=torch.uint8, device="npu")

    blocks = {
        block["address"]: block
        for segment in torch.npu.memory_snapshot()
        for block in segment["blocks"]
    }

    assert blocks[x.data_ptr()]["state"] == "active_allocated"
    assert blocks[x.data_ptr()]["requested_size"] == 3000


def test_mem_get_info_agrees_with_the_properties():
    free, total = torch.npu.mem_get_info()

    assert 0 <= free <= total
    assert total == torch.npu.get_device_properties().total_memory


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
