"""Importing this makes programs written for torch.cuda run on the npu.

Every name of torch.cuda that torch.npu has too is replaced by torch.npu's, and
where a program names a "cuda" device, to torch's constructors, `.to()`,
`.cuda()`, autocast, GradScaler or torch.load, the npu is meant. For the whole
process, and not to be undone.

A device's type reads "npu" then: a program that compares it with "cuda" takes
its other branch.
"""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import data
from torch.utils._device import _device_constructors

from npu_dispatch import npu

__all__: list[str] = []

# Modules of torch.cuda and the names in them that ours call otherwise.
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
    "_get_device_index",
    "_is_in_bad_fork",
    "_lazy_call",
    "_lazy_init",
    "_sleep",
)

_Device = torch.device
_Generator = torch.Generator


def _meant(value: Any) -> Any:
    """Return the npu's device where a "cuda" device is named."""
    if isinstance(value, str):
        name, colon, index = value.partition(":")
        return "npu" + colon + index if name == "cuda" else value
    if isinstance(value, _Device) and value.type == "cuda":
        return _Device("npu") if value.index is None else _Device("npu", value.index)
    return value


def _wrap(owner: Any, name: str) -> None:
    """Let a function of `owner` mean the npu where its arguments name cuda."""
    function = getattr(owner, name, None)
    if function is None:
        return

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        args = tuple(map(_meant, args))
        return function(*args, **{key: _meant(kwargs[key]) for key in kwargs})

    setattr(owner, name, call)


class _StandIn(type):
    """Of a class that makes instances of another, which pass for its own."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.real)  # type: ignore[attr-defined]

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, cls.real)  # type: ignore[attr-defined]


class _AnyDevice(metaclass=_StandIn):
    real = _Device

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        args = tuple(map(_meant, args))
        return _Device(*args, **{key: _meant(kwargs[key]) for key in kwargs})


class _AnyGenerator(metaclass=_StandIn):
    real = _Generator

    def __new__(cls, device: Any = "cpu") -> Any:
        return _Generator(_meant(device))


def _fill(to: Any, source: Any) -> None:
    """Give a module of torch.cuda what the same one of torch.npu has."""
    for name in [*getattr(to, "__all__", dir(to)), *_PRIVATE]:
        ours = _RENAMED.get(name, name)
        if not name.startswith("__") and name not in _MODULES and hasattr(source, ours):
            setattr(to, name, getattr(source, ours))


def _replace_cuda() -> None:
    _fill(torch.cuda, npu)
    for name in _MODULES:
        theirs = importlib.import_module(f"torch.cuda.{name}")
        _fill(theirs, importlib.import_module(f"npu_dispatch.npu.{name}"))
        if not hasattr(torch.cuda, name):
            setattr(torch.cuda, name, theirs)


def _autocast(
    enabled: bool = True, dtype: Any = None, cache_enabled: bool = True
) -> Any:
    """Return torch.autocast("npu"), for the old torch.cuda.amp.autocast()."""
    return torch.autocast("npu", dtype, enabled, cache_enabled)


def _map_location(load: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(load)
    def call(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(map_location, dict):
            location: Any = {k: _meant(v) for k, v in map_location.items()}
            # What a file of the npu's was saved from.
            location |= {_meant(k): _meant(v) for k, v in map_location.items()}
        else:
            location = _meant(map_location)
        return load(f, location, *args, **kwargs)

    return call


def _backend(init: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(init)
    def call(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        if backend == "nccl":
            backend = "hccl"
        return init(backend, *args, **kwargs)

    return call


def _replace_devices() -> None:
    owner: Any
    constructors: list[Any] = list(_device_constructors())
    for function in constructors:
        name: str = function.__name__
        owner = torch.fft if name.startswith("fft_") else torch
        if getattr(owner, name, None) is function:
            _wrap(owner, name)
    for name in ("empty_like", "full_like", "ones_like", "rand_like", "randint_like"):
        _wrap(torch, name)
    for name in ("randn_like", "zeros_like", "normal", "set_default_device"):
        _wrap(torch, name)
    for name in ("get_autocast_dtype", "is_autocast_enabled", "set_autocast_dtype"):
        _wrap(torch, name)
    for name in ("set_autocast_enabled", "get_device_module"):
        _wrap(torch, name)
    for name in ("new_empty", "new_empty_strided", "new_full", "new_ones"):
        _wrap(torch.Tensor, name)
    for name in ("new_tensor", "new_zeros", "to", "type", "pin_memory", "is_pinned"):
        _wrap(torch.Tensor, name)
    _wrap(torch.nn.Module, "to")
    _wrap(torch.nn.Module, "to_empty")
    for owner in (torch.autocast, torch.amp.GradScaler, data.DataLoader):
        _wrap(owner, "__init__")


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
            return to_npu(self, _meant(device), *args, **kwargs)

        owner.cuda = cuda
    is_npu = property(lambda self: self.device.type == "npu")
    torch.Tensor.is_cuda = is_npu  # type: ignore[assignment]


def _transfer() -> None:
    warnings.warn(
        "torch.cuda means torch.npu from now on, and device 'cuda' means 'npu'",
        stacklevel=3,
    )
    _replace_cuda()
    _replace_devices()
    _replace_methods()
    torch.cuda.amp.autocast = _autocast  # type: ignore
    torch.cuda.amp.GradScaler = npu.amp.GradScaler  # type: ignore
    torch.load = _map_location(torch.load)
    if torch.distributed.is_available():
        start = torch.distributed.init_process_group
        torch.distributed.init_process_group = _backend(start)
    torch.device = _AnyDevice  # type: ignore
    torch.Generator = _AnyGenerator  # type: ignore


_transfer()
