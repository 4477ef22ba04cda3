"""torch.npu.memory: device memory and its counters, as torch.cuda.memory has them.

It also has memory without tensors, and the counters of pinned host memory.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch

from npu_dispatch import _C
from npu_dispatch.npu.memory.history import (
    _dump_snapshot as _dump_snapshot,
    _record_memory_history as _record_memory_history,
    _snapshot as _snapshot,
    memory_snapshot as memory_snapshot,
)
from npu_dispatch.npu.memory.pool import (
    MemPool as MemPool,
    NPUPluggableAllocator as NPUPluggableAllocator,
    change_current_allocator as change_current_allocator,
    use_mem_pool as use_mem_pool,
)
from npu_dispatch.npu.runtime import own_names
from npu_dispatch.npu.runtime.alloc_conf import (
    _set_allocator_settings as _set_allocator_settings,
)
from npu_dispatch.npu.runtime.codes import coded, expect
from npu_dispatch.npu.runtime.devices import (
    Device,
    _checked,
    _get_device_index,
    checked_index,
    resolve,
)
from npu_dispatch.npu.runtime.processes import (
    list_gpu_processes as list_gpu_processes,
    reserved_elsewhere,
)
from npu_dispatch.npu.runtime.start import _lazy_init, is_initialized


def _index(device: Device) -> int:
    index = _get_device_index(device, optional=True)
    return _checked(index, "device argument", RuntimeError)


def _counted(device: Device) -> int:
    """Return the device whose counters to read; -1 if there is none: all are zero."""
    return -1 if device is None and not _C.device_count() else _index(device)


def _read(counter: Callable[[int], int], device: Device) -> int:
    index = _counted(device)
    return counter(index) if index >= 0 else 0


def empty_cache() -> None:
    """Give unused segments back to the driver, and kernels' buffers to the system.

    Does nothing before initialisation.
    """
    if is_initialized():
        _C.empty_cache()


def memory_allocated(device: Device = None) -> int:
    """Return the bytes handed out to tensors."""
    return _read(_C.memory_allocated, device)


def max_memory_allocated(device: Device = None) -> int:
    """Return the most bytes handed out since the last reset."""
    return _read(_C.max_memory_allocated, device)


def memory_reserved(device: Device = None) -> int:
    """Return the bytes held from the driver."""
    return _read(_C.memory_reserved, device)


def max_memory_reserved(device: Device = None) -> int:
    """Return the most bytes held since the last reset."""
    return _read(_C.max_memory_reserved, device)


def memory_stats(device: Device = None) -> OrderedDict[str, int]:
    """Return all counters, flat, under torch's keys; {} before initialisation."""
    index = _counted(device)
    return OrderedDict(sorted(_C.memory_stats(index).items()) if index >= 0 else ())


def _nested(flat: dict[str, int]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        *parents, leaf = key.split(".")
        level = nested
        for parent in parents:
            level = level.setdefault(parent, {})
        level[leaf] = value
    return nested


def memory_stats_as_nested_dict(device: Device = None) -> dict[str, Any]:
    """Return memory_stats() with its keys split at the dots."""
    return _nested(memory_stats(device))


def reset_peak_memory_stats(device: Device = None) -> None:
    """Start the peaks again from what is in use now."""
    _lazy_init()
    _C.reset_peak_memory_stats(_index(device))


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Start the running totals again from zero."""
    _lazy_init()
    _C.reset_accumulated_memory_stats(_index(device))


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Return a device's (free, total) bytes; a bad index raises AssertionError.

    Memory that this user's other processes hold does not count as free.
    """
    index = checked_index(device)
    free, total = _C.mem_get_info(index)
    return max(0, free - reserved_elsewhere(index)), total


def set_per_process_memory_fraction(fraction: float, device: Device = None) -> None:
    """Allow this process at most `fraction` of the device's memory."""
    expect(fraction, float, "fraction")
    if not 0.0 <= fraction <= 1.0:
        raise coded(ValueError, f"Invalid fraction: {fraction}. Allowed range: 0 to 1")
    _lazy_init()
    _C.set_per_process_memory_fraction(fraction, _index(device))


def get_per_process_memory_fraction(device: Device = None) -> float:
    """Return the fraction of the device's memory that this process may use."""
    return _C.get_per_process_memory_fraction(_index(device))


def get_allocator_backend() -> str:
    """Return "native", or "pluggable" after change_current_allocator().

    "guard" where PYTORCH_NPU_ALLOC_CONF has backend:guard and memory was used.
    """
    if _C.memory_guarded():
        return "guard"
    return "pluggable" if _C.allocator_replaced() else "native"


def guard_allocator_enabled() -> bool:
    """Return whether writes beside a tensor's memory become errors.

    PYTORCH_NPU_ALLOC_CONF=backend:guard does so, from the first use of the device on.
    Each allocation has 512 bytes on both sides that nobody may write. Where they have
    changed when the memory is given back, the stream fails at that point, with the line
    that allocated the memory. Memory that is not given back is not checked. Kernels of
    others are judged so: torch.cuda has compute-sanitizer for it.
    """
    _lazy_init()
    return _C.memory_guarded()


_ROWS = (
    ("Allocated memory", "allocated_bytes"),
    ("Active memory", "active_bytes"),
    ("Requested memory", "requested_bytes"),
    ("Reserved memory", "reserved_bytes"),
    ("Non-releasable memory", "inactive_split_bytes"),
    ("Allocations", "allocation"),
    ("Active allocations", "active"),
    ("Segments", "segment"),
    ("Non-releasable blocks", "inactive_split"),
)
_COLUMNS = ("current", "peak", "allocated", "freed")
_TITLES = ("Current", "Peak", "Total alloc", "Total freed")


def _quantity(value: int, is_bytes: bool) -> str:
    if not is_bytes:
        return str(value)
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 10240:
            return f"{amount:.0f} {unit}"
        amount /= 1024
    return f"{amount:.0f} TiB"


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """Return the counters as a table; all zeros before initialisation."""
    index = max(0, _counted(device))
    stats = memory_stats(device)
    pools = ("all",) if abbreviated else ("all", "large_pool", "small_pool")
    ooms, retries = stats.get("num_ooms", 0), stats.get("num_alloc_retries", 0)
    lines = [
        f"npu:{index}: {ooms} out-of-memory errors, {retries} allocation retries",
        f"{'Metric':<24}" + "".join(f"{title:>14}" for title in _TITLES),
    ]
    for title, key in _ROWS:
        for pool in pools:
            name = title if pool == "all" else f"  from {pool.replace('_', ' ')}"
            values = [stats.get(f"{key}.{pool}.{column}", 0) for column in _COLUMNS]
            cells = (_quantity(value, key.endswith("bytes")) for value in values)
            lines.append(f"{name:<24}" + "".join(f"{cell:>14}" for cell in cells))
    return "\n".join(lines) + "\n"


def _deprecated(old: str, new: str) -> None:
    warnings.warn(
        f"torch.npu.{old} is deprecated: use torch.npu.{new}",
        DeprecationWarning,
        stacklevel=3,
    )


def memory_cached(device: Device = None) -> int:
    """Old name of memory_reserved()."""
    _deprecated("memory_cached", "memory_reserved")
    return memory_reserved(device)


def max_memory_cached(device: Device = None) -> int:
    """Old name of max_memory_reserved()."""
    _deprecated("max_memory_cached", "max_memory_reserved")
    return max_memory_reserved(device)


def reset_max_memory_allocated(device: Device = None) -> None:
    """Old name of reset_peak_memory_stats(): resets all peaks."""
    _deprecated("reset_max_memory_allocated", "reset_peak_memory_stats")
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: Device = None) -> None:
    """Old name of reset_peak_memory_stats(): resets all peaks."""
    _deprecated("reset_max_memory_cached", "reset_peak_memory_stats")
    reset_peak_memory_stats(device)


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
    expect(tensor, torch.Tensor, "tensor")
    expect(stream, torch.Stream, "stream")
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
    return _nested(host_memory_stats())


def reset_accumulated_host_memory_stats() -> None:
    """Start the running totals of pinned memory again from zero."""
    _C.reset_accumulated_host_memory_stats()


def reset_peak_host_memory_stats() -> None:
    """Start the peaks of pinned memory again from what is in use now."""
    _C.reset_peak_host_memory_stats()


__all__ = [*own_names(globals()), "list_gpu_processes"]
