"""How many cores a device and a stream may use.

Kept and returned. Enforced for a device by torch.set_num_threads(), which
kernels follow; a stream's own limit is kept only.
"""

from __future__ import annotations

import os

import torch

from npu_dispatch.npu._device import _checked
from npu_dispatch.npu._index import Device, _get_device_index
from npu_dispatch.npu._lazy import _lazy_init

__all__ = [
    "get_device_limit",
    "get_stream_limit",
    "reset_stream_limit",
    "set_device_limit",
    "set_stream_limit",
]

Limit = dict[str, int]

_devices: dict[int, Limit] = {}
_streams: dict[tuple[int, int], Limit] = {}


def _cores() -> int:
    return os.cpu_count() or 1


def _checked_limit(now: Limit, cube_num: int, vector_num: int) -> Limit:
    limit = dict(now)
    for name, value in (("cube_core_num", cube_num), ("vector_core_num", vector_num)):
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"a number of cores must be an int, but got {value!r}")
        if value == -1:
            continue
        if not 1 <= value <= _cores():
            raise RuntimeError(f"{name} must be 1 to {_cores()}, but got {value}")
        limit[name] = value
    return limit


def set_device_limit(device: Device, cube_num: int = -1, vector_num: int = -1) -> None:
    """Limit a device's cores; -1 leaves a number as it is.

    The smaller of the two becomes the number of threads of later kernels.
    """
    limit = _checked_limit(get_device_limit(device), cube_num, vector_num)
    _devices[_checked(_get_device_index(device, optional=True))] = limit
    torch.set_num_threads(min(limit.values()))


def get_device_limit(device: Device) -> Limit:
    """Return cube_core_num and vector_core_num of a device; all cores at first."""
    _lazy_init()
    index = _checked(_get_device_index(device, optional=True))
    all_cores = {"cube_core_num": _cores(), "vector_core_num": _cores()}
    return dict(_devices.get(index, all_cores))


def _key(stream: torch.Stream) -> tuple[int, int]:
    if not isinstance(stream, torch.Stream):
        raise TypeError(f"expected a torch.npu.Stream, but got {stream!r}")
    return stream.device_index, stream.stream_id


def set_stream_limit(
    stream: torch.Stream, cube_num: int = -1, vector_num: int = -1
) -> None:
    """Keep a limit of cores for a stream; -1 leaves a number as it is."""
    _streams[_key(stream)] = _checked_limit(
        get_stream_limit(stream), cube_num, vector_num
    )


def reset_stream_limit(stream: torch.Stream) -> None:
    """Forget a stream's own limit."""
    _streams.pop(_key(stream), None)


def get_stream_limit(stream: torch.Stream) -> Limit:
    """Return a stream's limit, or its device's where it has none."""
    key = _key(stream)
    return dict(_streams.get(key) or get_device_limit(key[0]))
