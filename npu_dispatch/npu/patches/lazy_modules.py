"""Lets modules whose parameters have no shape yet move as others do."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import parameter

__all__: list[str] = []


def let_them_move() -> None:
    """Allow Tensor.npu() where torch allows Tensor.cuda()."""
    tensor: Any = torch.Tensor
    lazy: Any = parameter
    lazy.UninitializedTensorMixin._allowed_methods.append(tensor.npu)
