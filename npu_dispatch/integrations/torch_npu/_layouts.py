"""Private layouts of the vendor's chips, of which this device has none."""

from __future__ import annotations

import torch

_PLAIN = 2  # "ND"


def get_npu_format(tensor: torch.Tensor) -> int:
    """Return 2, the number of the plain layout."""
    return _PLAIN


def npu_format_cast(
    tensor: torch.Tensor, acl_format: int | torch.Tensor
) -> torch.Tensor:
    """Return the tensor: every layout is the plain one."""
    return tensor


def npu_format_cast_(
    tensor: torch.Tensor, acl_format: int | torch.Tensor
) -> torch.Tensor:
    """Return the tensor: every layout is the plain one."""
    return tensor
