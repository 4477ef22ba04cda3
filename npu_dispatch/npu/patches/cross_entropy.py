"""torch's chunked linear_cross_entropy, computed as on cpu.

torch chooses the type of its sums by the device's name, and knows only its own
devices, so half types would be summed in half precision here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions


def sum_as_on_cpu() -> None:
    """Make "auto" mean on npu what it means on cpu."""
    adjust: Any = LinearCrossEntropyOptions._adjust

    def adjust_as_for_cpu(
        self: LinearCrossEntropyOptions,
        *sizes_and_dtype: Any,
        device: torch.device | None = None,
        **others: Any,
    ) -> Any:
        if device is not None and device.type == "npu":
            device = torch.device("cpu")
        return adjust(self, *sizes_and_dtype, device=device, **others)

    LinearCrossEntropyOptions._adjust = adjust_as_for_cpu  # type: ignore[method-assign]
