"""Where a value names a "cuda" device, the npu is meant."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.jit import _builtins

_Device = torch.device
_Generator = torch.Generator


def meant(value: Any) -> Any:
    """Return the npu's device where a "cuda" device is named."""
    if isinstance(value, str):
        name, colon, index = value.partition(":")
        if name == "cuda":
            return "npu" + colon + index
        return value.replace("torch.cuda.", "torch.npu.")
    if isinstance(value, _Device) and value.type == "cuda":
        return _Device("npu") if value.index is None else _Device("npu", value.index)
    return value


def _call(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    return function(*map(meant, args), **{key: meant(kwargs[key]) for key in kwargs})


def wrap(owner: Any, name: str) -> None:
    """Let a function of `owner` mean the npu where its arguments name cuda."""
    function = getattr(owner, name, None)
    if function is None:
        return

    @functools.wraps(function)
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        return _call(function, args, kwargs)

    setattr(owner, name, stand_in)
    # torch.jit knows functions by their ids.
    known: Any = _builtins
    if operator := known._find_builtin(function):
        known._register_builtin(stand_in, operator)


class _StandIn(type):
    """The type of a class that makes another's instances, which pass for its own."""

    def __getattr__(cls, name: str) -> Any:
        return getattr(vars(cls)["real"], name)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.real)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, cls.real)


class AnyDevice(metaclass=_StandIn):
    real = _Device

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return _call(_Device, args, kwargs)


class AnyGenerator(metaclass=_StandIn):
    real = _Generator

    def __new__(cls, device: Any = "cpu") -> Any:
        return _Generator(meant(device))


class MadeOnDevice:
    """Replaces torch.Stream or torch.Event, which have no room for a hook."""

    def __init__(self, real: type) -> None:
        self.real = real
        self.__doc__ = real.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _call(self.real, args, kwargs)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, self.real)

    def __subclasscheck__(self, other: type) -> bool:
        return issubclass(other, self.real)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (self.real,)

    def __or__(self, other: Any) -> Any:
        return self.real | other

    def __ror__(self, other: Any) -> Any:
        return other | self.real

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)
