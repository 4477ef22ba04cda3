"""`import torch_npu`, when asked for: the device under the vendor's names.

It is off unless NPU_DISPATCH_TORCH_NPU_ALIAS=1 or
npu_dispatch.install_torch_npu_alias() switches it on, because libraries take an
importable torch_npu for the vendor's. `torch_npu.npu` is `torch.npu`. Below are the
functions outside it that accelerate, transformers, diffusers, trl and DeepSpeed
call; ordinary operators compute them.
"""

from __future__ import annotations

from npu_dispatch import npu as npu
from npu_dispatch.integrations.torch_npu import (
    _C as _C,
    contrib as contrib,
    optim as optim,
)
from npu_dispatch.integrations.torch_npu._fused import (
    npu_apply_adam_w,
    npu_fusion_attention,
    npu_geglu,
    npu_rms_norm,
    npu_rotary_mul,
    npu_swiglu,
)
from npu_dispatch.integrations.torch_npu._layouts import (
    get_npu_format,
    npu_format_cast,
    npu_format_cast_,
)
from npu_dispatch.npu import erase_stream
from npu_dispatch.versions import TORCH_NPU_VERSION

__all__ = [
    "contrib",
    "erase_stream",
    "get_npu_format",
    "npu",
    "npu_apply_adam_w",
    "npu_format_cast",
    "npu_format_cast_",
    "npu_fusion_attention",
    "npu_geglu",
    "npu_rms_norm",
    "npu_rotary_mul",
    "npu_swiglu",
    "optim",
]

__version__ = TORCH_NPU_VERSION
