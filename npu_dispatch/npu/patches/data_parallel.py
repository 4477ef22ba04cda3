"""The functions that torch.nn.parallel looks for in torch._C, as in CUDA's builds.

nn.DataParallel may call them before anything of ours is imported, so they are there
from the start. torch.npu.comm, which does their work, is imported by the first call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_NAMES = (
    "_broadcast",
    "_broadcast_out",
    "_broadcast_coalesced",
    "_scatter",
    "_scatter_out",
    "_gather",
    "_gather_out",
)


def _ours_or(
    original: Callable[..., Any] | None, count: Callable[[], int], name: str
) -> Callable[..., Any]:
    def call(tensors: Any, *args: Any) -> Any:
        from npu_dispatch.npu import comm

        first = (
            tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors), None)
        )
        on = None if first is None else first.device.type
        # What is on the host is meant for the devices that there are: a build for
        # CUDA may run where no such device is.
        if original is not None and (on == "cuda" or (on != "npu" and count() > 0)):
            return original(tensors, *args)
        return getattr(comm, name)(tensors, *args)

    return call


def serve_torch() -> None:
    """Give torch.nn.parallel.comm the functions it looks for in torch._C."""
    count = getattr(torch._C, "_cuda_getDeviceCount", int)
    for name in _NAMES:
        original = getattr(torch._C, name, None)
        setattr(torch._C, name, _ours_or(original, count, name))
