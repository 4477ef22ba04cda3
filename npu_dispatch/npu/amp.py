"""Mixed precision: torch.amp with the device filled in, as torch.cuda.amp."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from npu_dispatch.npu.runtime import own_names


class autocast(torch.amp.autocast):
    """torch.autocast("npu"): a context, or a decorator. float16 by default.

    torch's functions that name no device, such as torch.is_autocast_enabled() and
    torch.get_autocast_gpu_dtype(), mean npu where there is no CUDA device; not inside
    of TorchScript, where they mean CUDA.
    """

    def __init__(
        self,
        enabled: bool = True,
        dtype: torch.dtype = torch.float16,
        cache_enabled: bool = True,
    ) -> None:
        super().__init__(
            "npu", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled
        )


class GradScaler(torch.amp.GradScaler):
    """torch.amp.GradScaler("npu").

    step() waits for the device once, to see whether a gradient was infinite. With an
    optimizer made with fused=True it does not wait, as that looks on the device.
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__(
            "npu",
            init_scale=init_scale,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            growth_interval=growth_interval,
            enabled=enabled,
        )


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, cast_inputs: torch.dtype | None = None
) -> Any:
    """Decorate forward() of an autograd.Function; see torch.amp.custom_fwd."""
    return torch.amp.custom_fwd(fwd, device_type="npu", cast_inputs=cast_inputs)


def custom_bwd(bwd: Callable[..., Any]) -> Any:
    """Decorate backward() of an autograd.Function; see torch.amp.custom_bwd."""
    return torch.amp.custom_bwd(bwd, device_type="npu")


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the types that torch.autocast("npu") accepts."""
    return [torch.float16, torch.bfloat16, torch.float32]


def is_autocast_enabled() -> bool:
    """Return whether this thread is inside torch.autocast("npu")."""
    return torch.is_autocast_enabled("npu")


def set_autocast_enabled(enable: bool) -> None:
    """Switch this thread's autocast."""
    torch.set_autocast_enabled("npu", enable)


def get_autocast_dtype() -> torch.dtype:
    """Return the type that autocast computes in."""
    return torch.get_autocast_dtype("npu")


def set_autocast_dtype(dtype: torch.dtype) -> None:
    """Choose the type that autocast computes in."""
    torch.set_autocast_dtype("npu", dtype)


__all__ = own_names(globals())
