"""DLPack's number for the device, which torch looks up by the name it had at first."""

from __future__ import annotations

import functools
from typing import Any

import torch


def name_the_device() -> None:
    """Let `__dlpack_device__()` of npu tensors return (kDLExtDev, index)."""
    named = torch.Tensor.__dlpack_device__

    @functools.wraps(named)
    def __dlpack_device__(self: torch.Tensor) -> tuple[Any, int]:  # noqa: N807
        if self.device.type != "npu":
            return named(self)
        from torch.utils.dlpack import DLDeviceType

        return DLDeviceType.kDLExtDev, self.device.index

    torch.Tensor.__dlpack_device__ = __dlpack_device__  # type: ignore[method-assign]
