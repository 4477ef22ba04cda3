"""Importing this makes programs written for torch.cuda run on the npu.

Every name of torch.cuda that torch.npu has too is replaced by torch.npu's. Where a
program names a "cuda" device in torch's constructors, `.to()`, `.cuda()`, autocast,
GradScaler or torch.load, the npu is meant. This holds for the whole process, and
cannot be undone.

_cuda_names has what torch.cuda has and torch.npu has not, _cuda_compiled what
torch.compile asks. _cuda_users has what torch does with "cuda" beside tensors: files,
profiles, scripts.

The type of a device is then "npu", so a program that compares it with "cuda" takes
its other branch.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import data
from torch.utils._device import _device_constructors

from npu_dispatch import npu
from npu_dispatch.integrations.torch_npu.contrib import (
    _cuda_compiled,
    _cuda_names,
    _cuda_sanitizer,
    _cuda_users,
)
from npu_dispatch.integrations.torch_npu.contrib._cuda_keywords import with_names_of
from npu_dispatch.integrations.torch_npu.contrib._cuda_means_npu import (
    AnyDevice,
    AnyGenerator,
    meant,
    wrap,
)

__all__: list[str] = []

# Modules of torch.cuda, and the names in them that have another one in ours.
_MODULES = (
    "amp",
    "comm",
    "graphs",
    "jiterator",
    "memory",
    "nvtx",
    "profiler",
    "random",
    "streams",
)
_RENAMED = {
    "CUDAGraph": "NPUGraph",
    "CUDAPluggableAllocator": "NPUPluggableAllocator",
    "DeferredCudaCallError": "DeferredNpuCallError",
}
_PRIVATE = (
    "_create_jit_fn",
    "_create_multi_output_jit_fn",
    "_dump_snapshot",
    "_exchange_device",
    "_get_device_index",
    "_is_in_bad_fork",
    "_lazy_call",
    "_lazy_init",
    "_maybe_exchange_device",
    "_record_memory_history",
    "_set_allocator_settings",
    "_sleep",
    "_snapshot",
)


def _fill(to: Any, source: Any) -> None:
    """Give a module of torch.cuda what the same one of torch.npu has."""
    for name in [*getattr(to, "__all__", dir(to)), *_PRIVATE]:
        ours = _RENAMED.get(name, name)
        if not name.startswith("__") and name not in _MODULES and hasattr(source, ours):
            theirs = getattr(to, name, None)
            setattr(to, name, with_names_of(theirs, getattr(source, ours)))


def _replace_cuda() -> None:
    _fill(torch.cuda, npu)
    # torch.get_device_module("cuda") is torch.npu.
    for name, ours in _RENAMED.items():
        setattr(npu, name, getattr(npu, ours))
    for name in _MODULES:
        theirs = importlib.import_module(f"torch.cuda.{name}")
        _fill(theirs, importlib.import_module(f"npu_dispatch.npu.{name}"))
        if not hasattr(torch.cuda, name):
            setattr(torch.cuda, name, theirs)


def _autocast(
    enabled: bool = True,
    dtype: torch.dtype = torch.float16,
    cache_enabled: bool = True,
) -> Any:
    """Return torch.autocast("npu"), for the old torch.cuda.amp.autocast()."""
    return torch.autocast("npu", dtype, enabled, cache_enabled)


def _replace_devices() -> None:
    owner: Any
    constructors: list[Any] = list(_device_constructors())
    for function in constructors:
        name: str = function.__name__
        owner = torch.fft if name.startswith("fft_") else torch
        if getattr(owner, name, None) is function:
            wrap(owner, name)
    for name in ("empty_like", "full_like", "ones_like", "rand_like", "randint_like"):
        wrap(torch, name)
    for name in ("randn_like", "zeros_like", "normal", "set_default_device"):
        wrap(torch, name)
    wrap(torch, "get_device_module")
    for name in ("new_empty", "new_empty_strided", "new_full", "new_ones"):
        wrap(torch.Tensor, name)
    for name in ("new_tensor", "new_zeros", "to", "type", "pin_memory", "is_pinned"):
        wrap(torch.Tensor, name)
    # What a lazy layer's parameter can do before its shape is known.
    owner = torch.nn.parameter
    owner.UninitializedTensorMixin._allowed_methods.append(torch.Tensor.to)
    wrap(torch.nn.Module, "to")
    wrap(torch.nn.Module, "to_empty")
    wrap(data.DataLoader, "__init__")


def _replace_methods() -> None:
    owner: Any
    for owner in (torch.Tensor, torch.nn.Module):
        to_npu = owner.npu

        def cuda(
            self: Any,
            device: Any = None,
            *args: Any,
            to_npu: Callable[..., Any] = to_npu,
            **kwargs: Any,
        ) -> Any:
            return to_npu(self, meant(device), *args, **kwargs)

        owner.cuda = cuda
    is_npu = property(lambda self: self.device.type == "npu")
    for owner in (torch.Tensor, torch.UntypedStorage, torch.TypedStorage):
        owner.is_cuda = is_npu


def _transfer() -> None:
    warnings.warn(
        "torch.cuda means torch.npu from now on, and device 'cuda' means 'npu'",
        stacklevel=3,
    )
    before = _cuda_names.load_all()
    _replace_cuda()
    _replace_devices()
    _replace_methods()
    torch.cuda.amp.autocast = _autocast  # type: ignore
    torch.cuda.amp.GradScaler = npu.amp.GradScaler  # type: ignore
    _cuda_names.fill_in()
    _cuda_compiled.fill_in()
    _cuda_users.fill_in()
    _cuda_names.replace_where_imported(before)
    torch.device = AnyDevice  # type: ignore
    torch.Generator = AnyGenerator  # type: ignore
    _cuda_sanitizer.fill_in()


_transfer()
