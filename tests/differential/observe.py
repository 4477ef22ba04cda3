"""What can be seen of a value without waiting, and what can be read of it."""

import contextlib
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

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

    tensors: list[tuple[torch.Tensor | None, torch.Tensor]]
    """With each the bytes of its storage."""
    other: str


class Look(NamedTuple):
    """A tensor without its elements."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    version: int | None
    storage: str  # the first variable that has it
    place: str  # the device, where it is not the one of the variable's kind
    requires_grad: bool
    leaf: bool
    grad_fn: str | None
    flags: tuple[bool, bool, bool]
    grad: Any


# What `grad_fn` and `is_leaf` raise of a view that a write has ended: autograd
# makes the view anew, and its base may have other dimensions by then.
ENDED = (RuntimeError, IndexError)

_DEVICE = re.compile(r"\b((npu|cpu|privateuseone)(:\d+)?|PrivateUse1|NPU)\b")
# A type of a device, which torch names in two ways.
_TYPE = re.compile(r"\b(?:npu|CPU)([A-Z]\w+)Type\b")
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
        try:
            return _look_tensor(value, name, owners)
        except ENDED as raised:
            return f"{type(raised).__name__}: {without_device(str(raised))}"
    if isinstance(value, tuple | list):
        parts = [_look(v, f"{name}[{i}]", owners) for i, v in enumerate(value)]
        return (type(value).__name__, *parts)
    if isinstance(value, bool | int | float | complex | str | torch.dtype):
        return repr(value)
    return type(value).__name__


def _look_tensor(t: torch.Tensor, name: str, owners: dict[int, str]) -> Any:
    layout = t.layout
    if layout is not torch.strided:
        return (layout, t.dtype, tuple(t.shape))
    inference = t.is_inference()
    grad_fn = t.grad_fn
    leaf, requires_grad = grad_fn is None, t.requires_grad
    grad = t.grad if leaf and requires_grad else None
    return Look(
        t.dtype,
        tuple(t.shape),
        t.stride(),
        t.storage_offset(),
        None if inference else t._version,
        owners.setdefault(t.untyped_storage()._cdata, name),
        _place(t, name),
        requires_grad,
        leaf,
        None if leaf else type(grad_fn).__name__,
        (t.is_conj(), t.is_neg(), inference),
        None if grad is None else _look_tensor(grad, f"{name}.grad", owners),
    )


def _place(t: torch.Tensor, name: str) -> str:
    """Return "" where a variable lies that it may: e0, e1 on the second device."""
    number = 1 if name[0] == "e" else 0
    wrong = t.device.type == "npu" and t.device.index != number
    return str(t.device) if wrong else ""


class Reader:
    """Reads variables that nothing writes any more, each storage once."""

    def __init__(self) -> None:
        self._bytes: dict[int, torch.Tensor] = {}

    def values(self, value: Any) -> Values:
        """Read a variable. The whole storage too: what lies outside must not change."""
        read: list[tuple[torch.Tensor | None, torch.Tensor]] = []
        self._collect(value, read)
        return Values(read, "" if read else without_device(repr(value)[:400]))

    def _collect(
        self, value: Any, to: list[tuple[torch.Tensor | None, torch.Tensor]]
    ) -> None:
        if isinstance(value, tuple | list):
            for v in value:
                self._collect(v, to)
        if not isinstance(value, torch.Tensor):
            return
        with torch.no_grad():
            t = value.detach()
            if t.layout != torch.strided:
                to.append((None, t.to_dense().cpu()))
                return
            if t._is_zerotensor():  # Its storage has no memory.
                to.append((None, torch.zeros(t.shape, dtype=t.dtype)))
                return
            storage = t.untyped_storage()
            raw = self._bytes.get(storage._cdata)
            if raw is None:
                raw = torch.empty(0, dtype=torch.uint8, device=t.device)
                # A copy: a finalizer that is called later may write it.
                raw = raw.set_(storage).to("cpu", copy=True)
                self._bytes[storage._cdata] = raw
            host = torch.empty(0, dtype=t.dtype).set_(
                raw.untyped_storage(), t.storage_offset(), t.shape, t.stride()
            )
            host = host.conj() if t.is_conj() else host
            to.append((raw, torch._neg_view(host) if t.is_neg() else host))
        with contextlib.suppress(*ENDED):
            if value.is_leaf and value.requires_grad and value.grad is not None:
                self._collect(value.grad, to)
