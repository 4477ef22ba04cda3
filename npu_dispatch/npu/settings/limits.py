"""How many cores the kernels of a device and of a stream may use.

The smaller of the two numbers counts, because a virtual device has one kind of core.
Operators on cpu tensors are not limited.
"""

from __future__ import annotations

import os

import torch

from npu_dispatch import _C
from npu_dispatch.npu.runtime.codes import coded
from npu_dispatch.npu.runtime.devices import _checked
from npu_dispatch.npu.runtime.index import Device, _get_device_index
from npu_dispatch.npu.runtime.start import _lazy_init

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
            raise coded(
                TypeError, f"a number of cores must be an int, but got {value!r}"
            )
        if value == -1:
            continue
        if not 1 <= value <= _cores():
            raise coded(
                RuntimeError, f"{name} must be 1 to {_cores()}, but got {value}"
            )
        limit[name] = value
    return limit


def set_device_limit(device: Device, cube_num: int = -1, vector_num: int = -1) -> None:
    """Limit the cores of a device's kernels that start from now on.

    Each kernel may use that many, however many streams are at work, so that results do
    not depend on what else runs. -1 leaves a number as it is. Raises TypeError or
    RuntimeError for anything that is not a number of this machine's cores.
    """
    limit = _checked_limit(get_device_limit(device), cube_num, vector_num)
    index = _checked(_get_device_index(device, optional=True))
    _C.set_core_limit(index, -1, min(limit.values()))
    _devices[index] = limit


def get_device_limit(device: Device) -> Limit:
    """Return cube_core_num and vector_core_num of a device, at first all cores."""
    _lazy_init()
    index = _checked(_get_device_index(device, optional=True))
    all_cores = {"cube_core_num": _cores(), "vector_core_num": _cores()}
    return dict(_devices.get(index, all_cores))


def _key(stream: torch.Stream) -> tuple[int, int]:
    if not isinstance(stream, torch.Stream):
        raise coded(TypeError, f"expected a torch.npu.Stream, but got {stream!r}")
    return stream.device_index, stream.stream_id


def set_stream_limit(
    stream: torch.Stream, cube_num: int = -1, vector_num: int = -1
) -> None:
    """Limit the cores of a stream's kernels that start from now on.

    A stream's limit is never above its device's. -1 leaves a number as it is; errors
    are those of set_device_limit().
    """
    key = _key(stream)
    limit = _checked_limit(get_stream_limit(stream), cube_num, vector_num)
    _C.set_core_limit(*key, min(limit.values()))
    _streams[key] = limit


def reset_stream_limit(stream: torch.Stream) -> None:
    """Take a stream's own limit away."""
    key = _key(stream)
    if _streams.pop(key, None):
        _C.set_core_limit(*key, 0)


def get_stream_limit(stream: torch.Stream) -> Limit:
    """Return a stream's limit, or its device's where it has none."""
    key = _key(stream)
    return dict(_streams.get(key) or get_device_limit(key[0]))
