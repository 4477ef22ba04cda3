"""The private functions of CUDA that torch's own Python code calls, as the npu's.

Where torch.cuda.is_available(), torch takes them for granted: torch.compile's graphs,
checkpoints and nn.DataParallel call or import them.
"""

from __future__ import annotations

import sys

import torch
from torch.nn.parallel import comm as parallel_comm

from npu_dispatch import npu
from npu_dispatch.npu import comm


class _AllocatorState:
    """The type of CUDA's allocator checkpoints, of which the npu makes none."""


def _current_raw_stream(device: int) -> int:
    return npu.current_stream(device).npu_stream


_IN_C = {
    "_cuda_CUDAAllocator_AllocatorState": _AllocatorState,
    "_cuda_clearCublasWorkspaces": lambda: None,  # products keep no workspace
    "_cuda_cudaCachingAllocator_is_enabled": lambda: True,
    "_cuda_getCurrentRawStream": _current_raw_stream,
    "_cuda_isCurrentStreamCapturing": npu.is_current_stream_capturing,
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
        setattr(torch._C, name, ours)
    for module in _NAME_THE_DEVICE:
        if loaded := sys.modules.get(module):
            loaded._get_available_device_type = lambda: "npu"  # type: ignore[attr-defined]
    for name in comm.__all__:
        setattr(parallel_comm, name, getattr(comm, name))
