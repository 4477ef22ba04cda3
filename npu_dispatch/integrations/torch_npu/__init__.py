"""`import torch_npu`, when asked for: the device under the vendor's names.

It is off unless NPU_DISPATCH_TORCH_NPU_ALIAS=1 or
npu_dispatch.install_torch_npu_alias() switches it on, because libraries take an
importable torch_npu for the vendor's. `torch_npu.npu` is `torch.npu`. The operators
npu_... are compositions of torch's; torch.ops.npu has them too.
"""

from __future__ import annotations

from npu_dispatch import npu as npu
from npu_dispatch.import_alias import refused_names
from npu_dispatch.integrations.torch_npu import (
    _C as _C,
    _attention as _attention,
    _experts as _experts,
    _fused as _fused,
    _quantized as _quantized,
    contrib as contrib,
    distributed as distributed,
    optim as optim,
    profiler as profiler,
    utils as utils,
)
from npu_dispatch.integrations.torch_npu._fused import npu_apply_adam_w
from npu_dispatch.integrations.torch_npu._layouts import (
    get_npu_format,
    npu_format_cast,
    npu_format_cast_,
)
from npu_dispatch.integrations.torch_npu._operators import OPERATORS
from npu_dispatch.integrations.torch_npu.profiler import profiler as _profiler  # noqa: F401
from npu_dispatch.npu import amp as amp, erase_stream
from npu_dispatch.versions import TORCH_NPU_VERSION

__all__ = [
    "amp",
    "contrib",
    "distributed",
    "erase_stream",
    "get_npu_format",
    "npu",
    "npu_apply_adam_w",
    "npu_format_cast",
    "npu_format_cast_",
    "optim",
    "profiler",
    "utils",
    *OPERATORS,
]

globals().update(OPERATORS)
__getattr__ = refused_names("torch_npu")
__version__ = TORCH_NPU_VERSION
