"""Device memory without tensors, and pinned host memory's counters."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch

from npu_dispatch import _C
from npu_dispatch.npu.runtime.codes import coded
from npu_dispatch.npu.runtime.index import Device, resolve
from npu_dispatch.npu.runtime.start import _lazy_init

__all__ = [
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "empty_virt_addr_cache",
    "erase_stream",
    "host_empty_cache",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "reset_accumulated_host_memory_stats",
    "reset_peak_host_memory_stats",
]


def caching_allocator_alloc(
    size: int, device: Device = None, stream: torch.Stream | int | None = None
) -> int:
    """Return the address of `size` bytes of device memory; 0 for 0 bytes.

    `stream`, a stream or its `npu_stream`, is the one whose work orders the memory's
    reuse; by default it is the current one. Raises torch.OutOfMemoryError. Give the
    address to caching_allocator_delete() in the end.
    """
    _lazy_init()
    if not isinstance(size, int):
        raise coded(TypeError, f"size must be an int, but got {type(size).__name__}")
    if size < 0:
        raise coded(RuntimeError, f"cannot allocate {size} bytes")
    if size >= 2**63:
        raise coded(OverflowError, f"a size of {size} bytes does not fit into 64 bits")
    index = resolve(device)
    if stream is None:
        stream_id = _C.current_stream(index)
    elif isinstance(stream, torch.Stream):
        stream_id = stream.stream_id
        if stream.device_index != index:
            raise coded(RuntimeError, f"{stream!r} is not a stream of npu:{index}")
    elif isinstance(stream, int) and not isinstance(stream, bool):
        if stream and stream >> 32 != index:  # 0 is the default stream of every device
            raise coded(RuntimeError, f"{stream:#x} is not a stream of npu:{index}")
        stream_id = stream & 0xFFFFFFFF
    else:
        raise coded(
            TypeError,
            f"stream must be a torch.npu.Stream or its number, but got {stream!r}",
        )
    return _C.raw_alloc(size, index, stream_id)


def caching_allocator_delete(mem_ptr: int) -> None:
    """Free what caching_allocator_alloc() returned; any other address raises."""
    if not isinstance(mem_ptr, int):
        raise coded(
            TypeError, f"mem_ptr must be an int, but got {type(mem_ptr).__name__}"
        )
    if not 0 <= mem_ptr < 2**64:
        raise coded(RuntimeError, f"invalid device pointer: {mem_ptr:#x}")
    _C.raw_delete(mem_ptr)


def empty_virt_addr_cache() -> None:
    """Do nothing, as no address ranges are cached apart from their memory."""


def erase_stream(tensor: torch.Tensor, stream: torch.Stream) -> None:
    """Take back tensor.record_stream(stream).

    This is for callers that have made the tensor's own stream wait for `stream`, so
    that the memory may be reused at once. Mirrors torch_npu.erase_stream.
    """
    if not isinstance(tensor, torch.Tensor):
        raise coded(TypeError, f"expected a Tensor, but got {type(tensor).__name__}")
    if not isinstance(stream, torch.Stream):
        raise coded(TypeError, f"expected a Stream, but got {type(stream).__name__}")
    _C.erase_stream(tensor, stream.device_index, stream.stream_id)


def host_empty_cache() -> None:
    """Give unused pinned host memory back to the system."""
    _C.host_empty_cache()


def host_memory_stats() -> OrderedDict[str, int]:
    """Return the counters of pinned host memory, flat, under torch.cuda's keys.

    Bytes and counts have the keys current, peak, allocated and freed. Times are in
    microseconds and have the keys total, max, min and count.
    """
    return OrderedDict(sorted(_C.host_memory_stats().items()))


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """Return host_memory_stats() with its keys split at the dots."""
    nested: dict[str, Any] = {}
    for key, value in host_memory_stats().items():
        name, dot, part = key.partition(".")
        if dot:
            nested.setdefault(name, {})[part] = value
        else:
            nested[name] = value
    return nested


def reset_accumulated_host_memory_stats() -> None:
    """Start the running totals of pinned memory again from zero."""
    _C.reset_accumulated_host_memory_stats()


def reset_peak_host_memory_stats() -> None:
    """Start the peaks of pinned memory again from what is in use now."""
    _C.reset_peak_host_memory_stats()
