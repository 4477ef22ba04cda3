"""Overflow checks, and the dump of operators' inputs and outputs."""

from __future__ import annotations

import math
import warnings

import torch

from npu_dispatch.config import Config
from npu_dispatch.npu.runtime.codes import coded
from npu_dispatch.npu.runtime.start import _lazy_init
from npu_dispatch.npu.vendor.tensor_dump import finalize_dump, init_dump, set_dump

__all__ = [
    "clear_npu_overflow_flag",
    "finalize_dump",
    "get_npu_overflow_flag",
    "init_dump",
    "is_support_inf_nan",
    "npu_check_overflow",
    "set_dump",
]


def is_support_inf_nan() -> bool:
    """Return whether arithmetic is said to yield INF and NaN, and start the runtime.

    It is, unless INF_NAN_MODE_ENABLE=0 or INF_NAN_MODE_FORCE_DISABLE=1 is set. Only
    the checks below follow this mode, as kernels always yield INF and NaN.
    """
    _lazy_init()
    return Config.read().inf_nan


def npu_check_overflow(grad: float | torch.Tensor) -> bool:
    """Return whether a number, or the sum of a tensor as float32, is INF or NaN.

    Waits for the tensor. Any other type raises RuntimeError.
    """
    _lazy_init()
    if isinstance(grad, torch.Tensor):
        grad = grad.float().sum().item()
    if not isinstance(grad, float):
        raise coded(
            RuntimeError, f"expected a float or a Tensor, but got {type(grad).__name__}"
        )
    return math.isinf(grad) or math.isnan(grad)


def get_npu_overflow_flag() -> bool:
    """Return whether something has saturated, which never happens here.

    Raises RuntimeError where arithmetic yields INF and NaN; use npu_check_overflow()
    there.
    """
    if is_support_inf_nan():
        raise coded(
            RuntimeError,
            "get_npu_overflow_flag() needs saturation mode; in INF_NAN mode use "
            "torch.npu.utils.npu_check_overflow()",
        )
    return False


def clear_npu_overflow_flag() -> None:
    """Clear the flag of get_npu_overflow_flag(); in INF_NAN mode only warn."""
    if is_support_inf_nan():
        warnings.warn("in INF_NAN mode there is no overflow flag", stacklevel=2)
