"""Memory without a tensor: caching_allocator_alloc() and _delete()."""

from __future__ import annotations

import pytest
import torch


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
    for pointer in (12345, x.data_ptr()):
        with pytest.raises(RuntimeError, match="invalid device pointer"):
            torch.npu.caching_allocator_delete(pointer)
    with pytest.raises(RuntimeError, match="invalid device pointer"):
        torch.npu.caching_allocator_delete(-8)
    with pytest.raises(TypeError, match="mem_ptr"):
        torch.npu.caching_allocator_delete("x")
    with pytest.raises(OverflowError, match="does not fit"):
        torch.npu.caching_allocator_alloc(1 << 70)
    with pytest.raises(RuntimeError, match="not a stream of npu:0"):
        torch.npu.caching_allocator_alloc(8, stream=5 << 32)
    with pytest.raises(TypeError, match="stream must be"):
        torch.npu.caching_allocator_alloc(8, stream="s")
    with pytest.raises(RuntimeError, match="cannot allocate -1"):
        torch.npu.caching_allocator_alloc(-1)
    with pytest.raises(torch.OutOfMemoryError, match="PYTORCH_NPU_ALLOC_CONF"):
        torch.npu.caching_allocator_alloc(1 << 50)
