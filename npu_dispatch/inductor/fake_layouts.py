"""In which order the results of fake convolutions lie in memory.

Convolutions of the device are cpu's, whose results lie as channels_last where an input
does. torch takes those of an unknown backend to be contiguous.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from npu_dispatch.npu.patches.changes import replace


def _on_cpu(t: Tensor) -> Tensor:
    return torch.empty_like(t, device="cpu") if t.device.type == "npu" else t


def _as_for_cpu(select: Any, *args: Any, **how: Any) -> Any:
    args, how = pytree.tree_map_only(Tensor, _on_cpu, (args, how))
    return select(*args, **how)


def lay_out_as_cpu() -> None:
    """Let fake convolutions on the device have the strides of real ones."""
    replace(
        _as_for_cpu,
        "torch._C:_select_conv_backend",
        "torch._C:_conv_determine_backend_memory_format",
    )
