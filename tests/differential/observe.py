"""What can be seen of a value without waiting, and what can be read of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Error:
    """An exception, in words that name no device."""

    kinds: tuple[str, ...]
    """The name of its class, and of the classes above it."""
    text: str
    late: bool = False


@dataclass
class Values:
    """A variable's elements, and those of its grad, on the host."""

    tensors: list[torch.Tensor]
    other: str


_DEVICE = re.compile(r"\b((npu|cpu|privateuseone)(:\d+)?|PrivateUse1|NPU)\b")
# torch's own name for a type of a device that registers itself.
_TYPE = re.compile(r"\bnpu([A-Z]\w+)Type\b")
# Before what the kernel said, where a stream failed for another one's sake.
_WAITED = re.compile(r"^waited for another stream which has failed: .*? failed: ")
_ADDRESS = re.compile(r"0x[0-9a-f]+")


def without_device(text: str) -> str:
    text = text.split("\nException raised from")[0]
    text = _TYPE.sub(r"torch.\1Tensor", text)
    return _ADDRESS.sub("0x", _DEVICE.sub("CPU", text)).strip()


def error_of(raised: Exception) -> Error:
    kinds = tuple(c.__name__ for c in type(raised).__mro__[:-2])
    if isinstance(raised, torch.AcceleratorError):
        text = without_device(getattr(raised, "text", str(raised)))
        text = _WAITED.sub("", text)
        return Error(kinds, text, late=True)
    return Error(kinds, without_device(str(raised)))


def look(variables: dict[str, Any]) -> dict[str, Any]:
    """Describe variables; two that share a storage name the first with it."""
    owners: dict[int, str] = {}
    return {name: _look(value, name, owners) for name, value in variables.items()}


def _look(value: Any, name: str, owners: dict[int, str]) -> Any:
    if isinstance(value, torch.Tensor):
        return _look_tensor(value, name, owners)
    if isinstance(value, tuple | list):
        parts = [_look(v, f"{name}[{i}]", owners) for i, v in enumerate(value)]
        return (type(value).__name__, *parts)
    if isinstance(value, bool | int | float | complex | str | torch.dtype):
        return repr(value)
    return type(value).__name__


def _look_tensor(t: torch.Tensor, name: str, owners: dict[int, str]) -> Any:
    if t.layout != torch.strided:
        return (t.layout, t.dtype, tuple(t.shape))
    storage = t.untyped_storage()
    owner = owners.setdefault(storage._cdata, name)
    inference = t.is_inference()
    grad_fn = t.grad_fn
    grad = t.grad if t.is_leaf and t.requires_grad else None
    return {
        "dtype": t.dtype,
        "shape": tuple(t.shape),
        "strides": t.stride(),
        "offset": t.storage_offset(),
        "version": None if inference else t._version,
        "storage": owner,
        "requires_grad": t.requires_grad,
        "leaf": t.is_leaf,
        "grad_fn": None if grad_fn is None else type(grad_fn).__name__,
        "flags": (t.is_conj(), t.is_neg(), inference),
        "device": t.device.type == "cpu",
        "grad": None if grad is None else _look_tensor(grad, f"{name}.grad", owners),
    }


def values(value: Any) -> Values:
    """Read a variable. The whole storage too: what lies outside must not change."""
    tensors: list[torch.Tensor] = []
    _collect(value, tensors)
    return Values(tensors, "" if tensors else without_device(repr(value)[:400]))


def _collect(value: Any, out: list[torch.Tensor]) -> None:
    if isinstance(value, tuple | list):
        for v in value:
            _collect(v, out)
    if not isinstance(value, torch.Tensor):
        return
    with torch.no_grad():
        t = value.detach()
        if t.layout != torch.strided:
            out.append(t.to_dense().cpu())
            return
        raw = torch.empty(0, dtype=torch.uint8, device=t.device)
        # Copies: a finalizer that is called later may write what they were.
        out.append(raw.set_(t.untyped_storage()).to("cpu", copy=True))
        out.append(t.to("cpu", copy=True))
    if value.is_leaf and value.requires_grad and value.grad is not None:
        _collect(value.grad, out)
