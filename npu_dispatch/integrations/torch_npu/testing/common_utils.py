"""Tensors that torch_npu's tests begin with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

__all__ = ["create_common_tensor"]


def create_common_tensor(
    item: Sequence[Any],
    minValue: float,  # noqa: N803
    maxValue: float,  # noqa: N803
    device: Any = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a tensor of random values on the cpu, and its copy on the npu.

    item: the numpy type, the layout (of no effect), the shape.
    """
    dtype, _, shape = item
    values = np.random.default_rng().uniform(minValue, maxValue, shape).astype(dtype)
    on_cpu = torch.from_numpy(values)
    return on_cpu, on_cpu.to("npu" if device is None else device)
