"""Prints a tensor after one copy to the host."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import _tensor_str

__all__ = ["copy_once"]

# Of a larger tensor torch reads some elements only.
_MOST_BYTES = 1 << 20


def copy_once() -> None:
    """Let repr() wait once; torch reads each element that it prints by itself."""
    written: Any = _tensor_str._tensor_str

    @functools.wraps(written)
    def from_host(tensor: Any, *args: Any, **kwargs: Any) -> str:
        if (
            type(tensor) in (torch.Tensor, torch.nn.Parameter)
            and tensor.device.type == "npu"
            and tensor.layout == torch.strided
            and tensor.nbytes <= _MOST_BYTES
        ):
            tensor = tensor.detach().cpu()
        return written(tensor, *args, **kwargs)  # type: ignore[no-any-return]

    setattr(_tensor_str, "_tensor_str", from_host)  # noqa: B010
