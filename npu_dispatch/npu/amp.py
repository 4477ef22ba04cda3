"""Mixed precision switches of the calling thread."""

from __future__ import annotations

import torch

__all__ = [
    "get_amp_supported_dtype",
    "get_autocast_dtype",
    "is_autocast_enabled",
    "set_autocast_dtype",
    "set_autocast_enabled",
]


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
    """Return the type autocast computes in."""
    return torch.get_autocast_dtype("npu")


def set_autocast_dtype(dtype: torch.dtype) -> None:
    """Choose the type autocast computes in."""
    torch.set_autocast_dtype("npu", dtype)
