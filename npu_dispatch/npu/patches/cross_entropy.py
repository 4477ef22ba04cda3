"""torch's chunked linear_cross_entropy, computed as on cpu.

torch chooses the type of its sums by the device's name, and knows only its own
devices, so half types would be summed in half precision here.
"""

from __future__ import annotations

import torch
from torch.nn.modules import linear_cross_entropy_options as torchs


def sum_as_on_cpu() -> None:
    """Make "auto" mean on npu what it means on cpu."""
    options = torchs.LinearCrossEntropyOptions
    resolve = options._resolve_auto_acc_dtype

    def resolve_for(
        dtype: torch.dtype, device: torch.device | None
    ) -> torch.dtype | None:
        is_npu = device is not None and device.type == "npu"
        return resolve(dtype, torch.device("cpu") if is_npu else device)

    options._resolve_auto_acc_dtype = staticmethod(resolve_for)  # type: ignore[method-assign]
    for dtype in (torch.bfloat16, torch.float16):
        torchs._AUTO_DEFAULTS["npu", dtype] = torchs._AUTO_DEFAULTS["cpu", dtype]
