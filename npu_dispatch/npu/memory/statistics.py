"""How much memory the devices' allocators hold and hand out."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from npu_dispatch import _C
from npu_dispatch.npu.monitoring.processes import reserved_elsewhere
from npu_dispatch.npu.runtime.codes import coded
from npu_dispatch.npu.runtime.devices import _checked
from npu_dispatch.npu.runtime.index import Device, _get_device_index
from npu_dispatch.npu.runtime.start import _lazy_init, is_initialized

__all__ = [
    "empty_cache",
    "get_allocator_backend",
    "get_per_process_memory_fraction",
    "guard_allocator_enabled",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
]


def _index(device: Device) -> int:
    index = _get_device_index(device, optional=True)
    if not 0 <= index < _C.device_count():
        raise coded(
            RuntimeError,
            f"Invalid device argument {index}: there are {_C.device_count()} devices",
        )
    return index


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


def memory_stats_as_nested_dict(device: Device = None) -> dict[str, Any]:
    """Return memory_stats() with its keys split at the dots."""
    nested: dict[str, Any] = {}
    for key, value in memory_stats(device).items():
        *parents, leaf = key.split(".")
        level = nested
        for parent in parents:
            level = level.setdefault(parent, {})
        level[leaf] = value
    return nested


def reset_peak_memory_stats(device: Device = None) -> None:
    """Start the peaks again from what is in use now."""
    _lazy_init()
    _C.reset_peak_memory_stats(_index(device))


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Start the running totals again from zero."""
    _lazy_init()
    _C.reset_accumulated_memory_stats(_index(device))


def memory_snapshot(
    mempool_id: tuple[int, int] | None = None,
) -> list[dict[str, Any]]:
    """Return every segment and its blocks; [] before initialisation.

    mempool_id: return the segments of that MemPool.id only; (0, 0) is the memory that
    is in no pool.
    """
    if not is_initialized():
        return []
    return [
        segment
        for index in range(_C.device_count())
        for segment in _C.memory_snapshot(index)
        if mempool_id in (None, segment["segment_pool_id"])
    ]


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Return a device's (free, total) bytes; a bad index raises AssertionError.

    Memory that this user's other processes hold does not count as free.
    """
    _lazy_init()
    index = _checked(_get_device_index(device, optional=True))
    free, total = _C.mem_get_info(index)
    return max(0, free - reserved_elsewhere(index)), total


def set_per_process_memory_fraction(fraction: float, device: Device = None) -> None:
    """Allow this process at most `fraction` of the device's memory."""
    if not isinstance(fraction, float):
        raise coded(
            TypeError, f"fraction must be a float, not {type(fraction).__name__}"
        )
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
