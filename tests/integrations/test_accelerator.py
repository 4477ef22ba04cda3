"""torch's device-neutral interfaces on npu."""

from __future__ import annotations

import gc

import pytest
import torch
from held_stream import Held

accelerator = torch.accelerator
MIB = 1 << 20


def bytes_of(n: int) -> torch.Tensor:
    return torch.empty(n, dtype=torch.uint8, device="npu")


def test_current_accelerator():
    assert accelerator.is_available()
    assert accelerator.current_accelerator() == torch.device("npu")
    assert accelerator.current_accelerator(check_available=True).type == "npu"
    assert accelerator.device_count() == torch.npu.device_count()


@pytest.mark.filterwarnings("ignore:.*_device_idx.*:FutureWarning")
def test_devices():
    accelerator.set_device_index(0)
    accelerator.set_device_idx(0)
    assert accelerator.current_device_index() == accelerator.current_device_idx() == 0
    with accelerator.device_index(0):
        assert torch.npu.current_device() == 0


def test_capability():
    dtypes = accelerator.get_device_capability()["supported_dtypes"]
    assert {torch.float32, torch.float16, torch.bfloat16, torch.int64} <= set(dtypes)


def test_streams():
    before, stream = accelerator.current_stream(), torch.Stream(device="npu")
    assert before == torch.npu.current_stream()
    accelerator.set_stream(stream)
    try:
        assert torch.npu.current_stream() == accelerator.current_stream() == stream
        with Held():
            assert not stream.query()
        accelerator.synchronize()
        assert stream.query()
    finally:
        accelerator.set_stream(before)


def test_memory():
    accelerator.reset_peak_memory_stats()
    accelerator.reset_accumulated_memory_stats()
    before = accelerator.memory_allocated()
    x = bytes_of(32 * MIB)
    assert accelerator.memory_allocated() == before + x.nbytes
    assert accelerator.memory_allocated() == torch.npu.memory_allocated()
    assert accelerator.memory_reserved() == torch.npu.memory_reserved()
    stats = accelerator.memory_stats()
    assert stats["allocated_bytes.all.allocated"] == x.nbytes
    del x
    assert accelerator.max_memory_allocated() == before + 32 * MIB
    assert accelerator.max_memory_reserved() >= accelerator.memory_reserved()
    held = accelerator.memory_reserved()
    accelerator.empty_cache()
    assert accelerator.memory_reserved() <= held - 32 * MIB
    free, total = accelerator.get_memory_info()
    assert 0 < free <= total == torch.npu.mem_get_info()[1]


def test_host_memory():
    torch.empty(8 * MIB, dtype=torch.uint8).pin_memory()
    gc.collect()
    before = torch.npu.host_memory_stats()["allocated_bytes.current"]
    accelerator.empty_host_cache()
    assert torch.npu.host_memory_stats()["allocated_bytes.current"] < before


def test_graph():
    x, captured = torch.ones(4, device="npu"), accelerator.Graph()
    torch.npu.synchronize()
    stream = torch.Stream(device="npu")
    with stream:
        captured.capture_begin()
        y = x + 1
        captured.capture_end()
    x.fill_(4)
    accelerator.synchronize()
    with stream:
        captured.replay()
    accelerator.synchronize()
    assert y.tolist() == [5] * 4


@pytest.mark.parametrize("device", ["npu", "npu:0", torch.device("npu", 0), None])
def test_get_device_module(device):
    assert torch.get_device_module(device) is torch.npu


def test_generic_streams_and_events_are_ours():
    stream, event = torch.Stream(device="npu"), torch.Event(device="npu")
    with stream, Held():
        assert torch.npu.current_stream() == stream
        event.record()
        assert not event.query()
    event.wait(torch.npu.current_stream())
    event.synchronize()
    assert event.query() and stream.query()


def test_generic_random_functions():
    torch.manual_seed(5)
    first = torch.rand(4, device="npu").tolist()
    with torch.random.fork_rng(devices=[0], device_type="npu"):
        torch.rand(4, device="npu")
    second = torch.rand(4, device="npu").tolist()
    torch.manual_seed(5)
    assert torch.rand(4, device="npu").tolist() == first
    assert torch.rand(4, device="npu").tolist() == second
    assert torch.npu.default_generators[0].initial_seed() == 5
