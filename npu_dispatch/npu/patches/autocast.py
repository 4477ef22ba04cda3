"""Autocast for npu where torch asks without naming a device.

torch's functions that name none mean CUDA. nn.MultiheadAttention and
nn.TransformerEncoder ask one of them whether to take a fast path that does not cast.
Where there is no CUDA device, these functions mean npu. CUDA's own state stays as it
is: TorchScript inserts casts by it, which are for tensors of CUDA.

nn.DataParallel tells the threads of its replicas that autocast is on, but no dtype.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.jit import _builtins
from torch.nn import parallel

__all__: list[str] = []


@functools.cache
def _count_cuda() -> int:
    return torch.cuda.device_count()


def _default() -> str:
    from npu_dispatch.npu.runtime import devices

    # After npu_dispatch.redirect_cuda(), torch.cuda is npu.
    if torch.cuda.device_count is devices.device_count:
        return "npu"
    return "cuda" if _count_cuda() else "npu"


def _name_the_device(name: str, by: str, values: int) -> None:
    """Let a function that got no device call `by` with one.

    values: how many arguments it has beside the device.
    """
    own, with_device = getattr(torch, name), getattr(torch, by)

    @functools.wraps(own)
    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) + len(kwargs) > values:
            return own(*args, **kwargs)
        return with_device(_default(), *args, **kwargs)

    for owner in (torch, torch._C):
        setattr(owner, name, call)
    # TorchScript knows functions by their ids.
    known: Any = _builtins
    if operator := known._find_builtin(own):
        known._register_builtin(call, operator)
    # Dynamo, where it is imported already, knows the functions whose values it folds.
    if dynamo := sys.modules.get("torch._dynamo.variables.torch"):
        folded: dict[Any, None] = dynamo.constant_fold_functions
        if own in folded:
            folded[call] = None


def _with_dtype(apply: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(apply)
    def parallel_apply(modules: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        if torch.is_autocast_enabled("npu"):
            dtype = torch.get_autocast_dtype("npu")
            cached = torch.is_autocast_cache_enabled()
            # Each thread enters one of its own, as they keep what they replace.
            modules = [
                torch.autocast("npu", dtype, cache_enabled=cached)(module.__call__)
                for module in modules
            ]
        return apply(modules, *args, **kwargs)

    return parallel_apply


def tell_torch() -> None:
    """Let these functions mean npu, and give DataParallel's replicas the dtype."""
    _name_the_device("is_autocast_enabled", "is_autocast_enabled", 0)
    _name_the_device("set_autocast_enabled", "set_autocast_enabled", 1)
    _name_the_device("get_autocast_gpu_dtype", "get_autocast_dtype", 0)
    _name_the_device("set_autocast_gpu_dtype", "set_autocast_dtype", 1)
    apply = _with_dtype(parallel.parallel_apply)
    parallel.parallel_apply = apply
    # The package has a function of this module's name.
    user: Any = importlib.import_module("torch.nn.parallel.data_parallel")
    user.parallel_apply = apply
