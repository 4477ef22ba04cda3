"""Switches of torch's that are global to the process and that kernels read.

A task runs under the switches of its launch: whoever changes one first waits
for what is queued.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from npu_dispatch import _C

SETTERS = (
    "_set_cpu_allow_fp16_reduced_precision_reduction",
    "_set_default_dtype",
    "_set_default_tensor_type",
    "_set_deterministic_algorithms",
    "_set_deterministic_fill_uninitialized_memory",
    "_set_float32_matmul_precision",
    "_set_fp32_precision_setter",
    "_set_mkldnn_deterministic",
    "_set_mkldnn_enabled",
    "_set_nnpack_enabled",
    "_set_onednn_allow_tf32",
    "_set_qengine",
)


def _in_order(setter: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(setter)
    def change(*args: Any, **kwargs: Any) -> Any:
        _C.finish_launched()
        try:
            return setter(*args, **kwargs)
        finally:
            _C.read_switches()

    return change


def keep_in_order() -> None:
    """Make torch's setters wait for queued work, which still has the old state."""
    for name in SETTERS:
        setter = getattr(torch._C, name, None)
        if setter is not None and not hasattr(setter, "__wrapped__"):
            setattr(torch._C, name, _in_order(setter))
