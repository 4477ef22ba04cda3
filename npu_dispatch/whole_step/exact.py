"""When two arguments are one value to a graph, which has it as a constant.

Python's `==` does not tell: 1, True and 1.0 are equal, and so are 0.0 and -0.0, but a
model may compute something else with each. Dynamo's guards know the types of
arguments, but neither the sign of a zero nor the type of a number that is a dict's key.
"""

from __future__ import annotations

import dataclasses
import math
import struct
import sys
from types import NoneType
from typing import Any

import torch
from torch.utils import _pytree as pytree

__all__ = ["exact", "exact_spec"]

# Their values of one type are equal only where nothing tells them apart.
_PLAIN = (
    *(NoneType, bool, int, str, bytes),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size),
)


class _Itself:
    """A key that equals no other object's, and keeps the object alive."""

    def __init__(self, value: object) -> None:
        hash(value)  # raises TypeError for what may change
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self._value is other._value

    def __hash__(self) -> int:
        return id(self._value)


def _bits(number: float) -> bytes:
    if not number > 0 and not number < 0 and math.copysign(1.0, number) < 0:
        raise TypeError(f"a compiled model cannot tell {number!r} from {-number!r}")
    return struct.pack("d", number)


def exact(value: Any) -> Any:
    """Return a key that only a value of the same type and with the same bits has.

    An object of a type that is not known here has the key of no other one, however
    equal they are. Raises TypeError for what may change, and for -0.0.
    """
    kind = type(value)
    if kind in _PLAIN:
        return kind, value
    if kind is float:
        return kind, _bits(value)
    if kind is complex:
        return kind, _bits(value.real), _bits(value.imag)
    numpy = sys.modules.get("numpy")
    if numpy and isinstance(value, numpy.generic):
        return kind, value.tobytes()
    if dataclasses.is_dataclass(kind):
        hash(value)
        fields = dataclasses.fields(value)
        return kind, *(exact(getattr(value, field.name)) for field in fields)
    return _Itself(value)


def _exact_name(name: Any) -> Any:
    if isinstance(name, list | tuple):
        return type(name), *map(_exact_name, name)
    if isinstance(name, bool | float | complex):
        raise TypeError(
            f"a compiled model cannot tell the key {name!r} of a dict from an equal one"
        )
    return exact(name)


def exact_spec(spec: pytree.TreeSpec) -> Any:
    """Return the same for a structure, which has keys of dicts as values."""
    return spec.type, _exact_name(spec.context), *map(exact_spec, spec.children())
