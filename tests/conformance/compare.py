"""Is what the device gave what cpu gave?"""

from __future__ import annotations

import cmath
import math
from typing import Any

import torch
from torch import Tensor

from tests.conformance.copies import tensors_in


class MismatchError(AssertionError):
    """The device's result differs; the text says where and how."""


class ValueMismatchError(MismatchError):
    """In nothing but numbers."""


def compare(got: Any, expected: Any, *, values: bool = True, at: str = "") -> None:
    """Raise MismatchError unless they agree.

    Values that differ by less than torch.testing's tolerance for their dtype
    agree: a kernel may split its loop where memory is aligned.
    """
    where = at or "result"
    if isinstance(expected, Tensor):
        if not isinstance(got, Tensor):
            raise MismatchError(f"{where}: {type(got).__name__}, not a tensor")
        _compare_tensors(got, expected, values, where)
    elif isinstance(expected, list | tuple):
        if type(got) is not type(expected) or len(got) != len(expected):
            raise MismatchError(f"{where}: {_kind(got)} instead of {_kind(expected)}")
        for i, (g, e) in enumerate(zip(got, expected, strict=True)):
            compare(g, e, values=values, at=f"{at}[{i}]")
    elif isinstance(expected, dict):
        if not isinstance(got, dict) or list(got) != list(expected):
            raise MismatchError(f"{where}: {got!r} instead of {expected!r}")
        for key, e in expected.items():
            compare(got[key], e, values=values, at=f"{at}[{key!r}]")
    elif not isinstance(expected, torch.device | torch.Generator):
        same = not values or got == expected or (got != got and expected != expected)
        close = isinstance(expected, float | complex) and (
            cmath.isclose(got, expected, rel_tol=1.3e-6, abs_tol=1e-5)
        )
        if type(got) is not type(expected) or not (same or close):
            raise MismatchError(f"{where}: {got!r} instead of {expected!r}")


def _kind(value: Any) -> str:
    size = f" of {len(value)}" if isinstance(value, list | tuple) else ""
    return type(value).__name__ + size


def _compare_tensors(got: Tensor, expected: Tensor, values: bool, at: str) -> None:
    for name in ("shape", "dtype", "layout", "requires_grad"):
        g, e = getattr(got, name), getattr(expected, name)
        if g != e:
            raise MismatchError(f"{at}: {name} {_short(g)} instead of {_short(e)}")
    if not values:
        return
    if expected.is_nested:
        compare(list(got.detach().unbind()), list(expected.detach().unbind()), at=at)
        return
    got, expected = got.detach().cpu(), expected.detach()
    if expected.layout == torch.strided:
        got = got.resolve_conj().resolve_neg()
        expected = expected.resolve_conj().resolve_neg()
        if expected.dtype == torch.complex32:  # cpu cannot compare it
            got, expected = torch.view_as_real(got), torch.view_as_real(expected)
        if torch.equal(got, expected):
            return
    try:
        torch.testing.assert_close(got, expected, equal_nan=True, check_stride=False)
    except AssertionError as error:
        raise ValueMismatchError(f"{at}: {_one_line(error)}") from None


def ill_conditioned(got: Any, expected: Any, nudged: Any) -> bool:
    """Return whether an error is what rounding the inputs makes on cpu, too.

    `nudged` is cpu's result for inputs moved by a rounding error. A kernel that
    splits its loop elsewhere may differ as much, but never by more than half of
    a number's digits.
    """
    triples = zip(
        tensors_in(got), tensors_in(expected), tensors_in(nudged), strict=True
    )
    for g, e, n in triples:
        if not (e.is_floating_point() or e.is_complex()) or e.layout != torch.strided:
            continue
        if e.numel() == 0 or e.dtype == torch.complex32:
            continue
        digits = math.sqrt(torch.finfo(e.dtype).eps)
        precise = torch.complex128 if e.is_complex() else torch.float64
        g, e, n = (t.detach().cpu().to(precise).nan_to_num() for t in (g, e, n))
        limit = min(8 * (n - e).abs().max(), digits * e.abs().max())
        if (g - e).abs().max() > limit:
            return False
    return True


def _short(value: Any) -> str:
    return str(tuple(value)) if isinstance(value, torch.Size) else str(value)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def compare_strides(got: Any, expected: Any) -> None:
    """Raise MismatchError unless all tensors lie in memory as cpu's do.

    The stride of a dimension of size 1 or of an empty tensor says nothing.
    """
    for i, (g, e) in enumerate(zip(tensors_in(got), tensors_in(expected), strict=True)):
        if e.layout != torch.strided or e.is_nested or e.numel() == 0:
            continue
        steps = [
            [step for step, size in zip(t.stride(), t.shape, strict=True) if size > 1]
            for t in (g, e)
        ]
        if steps[0] != steps[1]:
            raise MismatchError(
                f"strides of tensor {i}: {g.stride()} instead of {e.stride()}, "
                f"shape {tuple(e.shape)}"
            )


def compare_aliases(
    got: Any, got_inputs: list[Tensor], expected: Any, expected_inputs: list[Tensor]
) -> None:
    """Raise MismatchError unless results share memory with the inputs that cpu's do."""
    mine, cpus = _aliases(got, got_inputs), _aliases(expected, expected_inputs)
    if mine != cpus:
        raise MismatchError(f"aliases: memory of inputs {mine} instead of {cpus}")


def _aliases(results: Any, inputs: list[Tensor]) -> list[int | None]:
    """Return for each result with elements the first input with its storage."""
    storages = [
        t.untyped_storage()._cdata if t.layout == torch.strided else 0 for t in inputs
    ]
    found: list[int | None] = []
    for result in tensors_in(results):
        own = -1
        if result.layout == torch.strided and result.numel():
            own = result.untyped_storage()._cdata
        found.append(storages.index(own) if own in storages else None)
    return found


def compare_memory(
    got: list[Tensor], expected: list[Tensor], dtypes: list[torch.dtype]
) -> None:
    """Raise MismatchError unless the inputs hold afterwards what cpu's hold.

    Elsewhere than in their elements, too: a kernel must not write there.
    """
    for i, (g, e, dtype) in enumerate(zip(got, expected, dtypes, strict=True)):
        g = g.cpu()
        if torch.equal(g, e):
            continue
        size = g.numel() // dtype.itemsize * dtype.itemsize
        try:
            torch.testing.assert_close(
                g[:size].view(dtype), e[:size].view(dtype), equal_nan=True
            )
        except AssertionError as error:
            raise MismatchError(f"input {i} afterwards: {_one_line(error)}") from None
