"""Which device a `device` argument means."""

from __future__ import annotations

from typing import Any, TypeAlias

import torch

from npu_dispatch import _C
from npu_dispatch.npu._codes import coded

# None, an index, "npu", "npu:0", a torch.device, or a torch.npu.device.
Device: TypeAlias = Any


def is_npu(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is on an npu: Tensor.is_npu, for type checkers."""
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
    if isinstance(getattr(device, "idx", None), int):  # a torch.npu.device
        return int(device.idx)
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
    index: int | None = device.index
    if index is not None:
        return index
    if optional:
        return _C.current_device()
    raise coded(
        ValueError, f"Expected a device with a specified index, but got: {device}"
    )
