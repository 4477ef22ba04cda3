"""Shared host memory of state dicts, which torch.distributed pins through CUDA."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from npu_dispatch import _C
from npu_dispatch.npu.interop.npu_runtime import npurt
from npu_dispatch.npu.runtime.start import is_initialized


def pin_on_npu() -> None:
    """Let torch.cuda._pin_memory_utils register memory with the npu where CUDA is not.

    torch.distributed calls it for state dicts that are to be both pinned and shared.
    """
    utils: Any = importlib.import_module("torch.cuda._pin_memory_utils")
    pin, unpin = utils.pin_memory, utils.unpin_memory

    def pin_memory(data_ptr: int, size: int) -> None:
        if torch.cuda.is_available():
            pin(data_ptr, size)
        elif npurt().npuHostRegister(data_ptr, size):
            raise RuntimeError(
                f"npu: {size} bytes of shared host memory at {data_ptr:#x} cannot be "
                "pinned: a part of them is pinned already. Pin each storage once, or "
                "use pin_memory=False"
            )

    def unpin_memory(data_ptr: int) -> None:
        if torch.cuda.is_available():
            unpin(data_ptr)
            return
        # The memory goes away now, and queued copies may still use it.
        for device in range(_C.device_count() if is_initialized() else 0):
            _C.synchronize(device)
        _C.unregister_pinned(data_ptr)

    utils.pin_memory, utils.unpin_memory = pin_memory, unpin_memory
