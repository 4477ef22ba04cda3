"""Which device a `device` argument means."""

from __future__ import annotations

from typing import Protocol, TypeAlias

import torch

from npu_dispatch import _C
from npu_dispatch.npu.runtime.codes import coded
from npu_dispatch.npu.runtime.start import _lazy_init


class _DeviceContext(Protocol):
    """A torch.npu.device."""

    @property
    def idx(self) -> int: ...


# None is the current device; a string is "npu" or "npu:0".
Device: TypeAlias = int | str | torch.device | _DeviceContext | None


def is_npu(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is on an npu, as Tensor.is_npu, but known to mypy."""
    return tensor.device.type == "npu"


def _get_device_index(
    device: Device, optional: bool = False, allow_cpu: bool = False
) -> int:
    """Return the index, unchecked; -1 for the CPU where that is allowed."""
    if device is None:
        if optional:
            return _C.current_device()
        raise coded(
            ValueError, "Expected a device with a specified index, but got: None"
        )
    if isinstance(device, int):
        return int(device)
    index: object = getattr(device, "idx", None)  # of a torch.npu.device
    if isinstance(index, int):
        return int(index)
    if isinstance(device, str):
        device = torch.device(device)
    if not isinstance(device, torch.device):
        raise coded(
            ValueError, f"Expected a torch.device or an index, but got: {device!r}"
        )
    if device.type == "cpu" and allow_cpu:
        return -1
    if device.type != "npu":
        raise coded(ValueError, f"Expected an npu device, but got: {device}")
    number: int | None = device.index
    if number is not None:
        return number
    if optional:
        return _C.current_device()
    raise coded(
        ValueError, f"Expected a device with a specified index, but got: {device}"
    )


def resolve(device: Device) -> int:
    """Return a checked device index; None and negative mean the current one."""
    _lazy_init()
    index = _get_device_index(device, optional=True)
    if index < 0:
        return _C.current_device()
    if index >= _C.device_count():
        raise coded(
            RuntimeError,
            f"invalid device id {index}: there are {_C.device_count()} devices",
        )
    return index
