"""The private functions of CUDA that torch's own Python code calls, as the npu's.

Where torch.cuda.is_available(), torch takes them for granted: torch.compile's graphs,
checkpoints and nn.DataParallel call or import them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parallel import comm as parallel_comm

from npu_dispatch import _C, npu
from npu_dispatch.npu import comm


class _AllocatorState:
    """The type of CUDA's allocator checkpoints, of which the npu makes none."""


def _current_raw_stream(device: int) -> int:
    return npu.current_stream(device).npu_stream


def _apart(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls it: Dynamo knows each object under one name."""
    return lambda *args, **kwargs: function(*args, **kwargs)


def _set_stream(stream_id: int, device_index: int, device_type: int) -> None:
    npu.set_stream(npu.Stream(stream_id=stream_id, device_index=device_index))


_IN_C: dict[str, Any] = {
    "_cuda_CUDAAllocator_AllocatorState": _AllocatorState,
    # Called with device, bytes asked for, bytes of the device, bytes of it free.
    "_cuda_attach_out_of_memory_observer": _C.attach_out_of_memory_observer,
    "_cuda_clearCublasWorkspaces": lambda: None,  # products keep no workspace
    "_cuda_cudaCachingAllocator_is_enabled": lambda: True,
    "_cuda_emptyCache": npu.empty_cache,
    "_cuda_exchangeDevice": npu._exchange_device,
    "_cuda_getCurrentRawStream": _current_raw_stream,
    "_cuda_getDevice": npu.current_device,
    "_cuda_getDeviceCount": npu.device_count,
    "_cuda_init": npu.init,
    "_cuda_isCurrentStreamCapturing": npu.is_current_stream_capturing,
    "_cuda_isInBadFork": npu._is_in_bad_fork,
    "_cuda_maybeExchangeDevice": npu._maybe_exchange_device,
    "_cuda_setDevice": npu.set_device,
    "_cuda_setStream": _set_stream,
    "_cuda_synchronize": npu.synchronize,
}
# The modules that have torch's function for the name of the device in use.
_NAME_THE_DEVICE = (
    "torch._utils",
    "torch.nn.parallel.data_parallel",
    "torch.distributed.checkpoint.filesystem",
)


def fill_in() -> None:
    """Give torch these functions."""
    for name, ours in _IN_C.items():
        setattr(torch._C, name, ours if isinstance(ours, type) else _apart(ours))
    for module in _NAME_THE_DEVICE:
        if loaded := sys.modules.get(module):
            loaded._get_available_device_type = lambda: "npu"  # type: ignore[attr-defined]
    for name in comm.__all__:
        setattr(parallel_comm, name, getattr(comm, name))
