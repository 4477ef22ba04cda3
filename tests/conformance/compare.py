"""Is what the device gave what cpu gave?"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from tests.conformance.copies import tensors_in


class Mismatch(AssertionError):
    """The device's result differs; the text says where and how."""


def compare(got: Any, expected: Any, *, values: bool = True, at: str = "") -> bool:
    """Raise Mismatch unless they agree; return whether every value is equal.

    Values that differ by less than torch.testing's tolerance for their dtype
    agree: a kernel may split its loop where memory is aligned.
    """
    where = at or "result"
    if isinstance(expected, Tensor):
        if not isinstance(got, Tensor):
            raise Mismatch(f"{where}: {type(got).__name__}, not a tensor")
        return _compare_tensors(got, expected, values, where)
    if isinstance(expected, list | tuple):
        if type(got) is not type(expected) or len(got) != len(expected):
            raise Mismatch(f"{where}: {_kind(got)} instead of {_kind(expected)}")
        pairs = zip(got, expected, strict=True)
        return all(
            [
                compare(g, e, values=values, at=f"{at}[{i}]")
                for i, (g, e) in enumerate(pairs)
            ]
        )
    if isinstance(expected, dict):
        if not isinstance(got, dict) or list(got) != list(expected):
            raise Mismatch(f"{where}: {got!r} instead of {expected!r}")
        return all(
            [
                compare(got[k], e, values=values, at=f"{at}[{k!r}]")
                for k, e in expected.items()
            ]
        )
    if isinstance(expected, torch.device | torch.Generator):
        return True
    if type(got) is not type(expected):
        raise Mismatch(f"{where}: {got!r} instead of {expected!r}")
    if not values or got == expected or (got != got and expected != expected):
        return True
    if isinstance(expected, float | complex):
        error = abs(got - expected)
        if error <= 1e-5 + 1.3e-6 * abs(expected) and math.isfinite(error):
            return False
    raise Mismatch(f"{where}: {got!r} instead of {expected!r}")


def _kind(value: Any) -> str:
    size = f" of {len(value)}" if isinstance(value, list | tuple) else ""
    return type(value).__name__ + size


def _compare_tensors(got: Tensor, expected: Tensor, values: bool, at: str) -> bool:
    for name in ("shape", "dtype", "layout", "requires_grad"):
        g, e = getattr(got, name), getattr(expected, name)
        if g != e:
            raise Mismatch(f"{at}: {name} {_short(g)} instead of {_short(e)}")
    if not values:
        return True
    if expected.is_nested:
        return compare(
            list(got.detach().unbind()), list(expected.detach().unbind()), at=at
        )
    got, expected = got.detach().cpu(), expected.detach()
    if expected.layout != torch.strided:
        # Of indices and values.
        torch.testing.assert_close(got, expected, equal_nan=True)
        return True
    got = got.resolve_conj().resolve_neg()
    expected = expected.resolve_conj().resolve_neg()
    if expected.dtype == torch.complex32:  # cpu cannot compare it
        got, expected = torch.view_as_real(got), torch.view_as_real(expected)
    if torch.equal(got, expected):
        return True
    try:
        torch.testing.assert_close(got, expected, equal_nan=True, check_stride=False)
    except AssertionError as error:
        raise Mismatch(f"{at}: {_one_line(error)}") from None
    finite = ~(got.isnan() & expected.isnan())
    return torch.equal(got[finite], expected[finite])


def _short(value: Any) -> str:
    return str(tuple(value)) if isinstance(value, torch.Size) else str(value)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def compare_strides(got: Any, expected: Any) -> None:
    """Raise Mismatch unless all tensors lie in memory as cpu's do.

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
            raise Mismatch(
                f"strides of tensor {i}: {g.stride()} instead of {e.stride()}, "
                f"shape {tuple(e.shape)}"
            )


def compare_aliases(
    got: Any, got_inputs: list[Tensor], expected: Any, expected_inputs: list[Tensor]
) -> None:
    """Raise Mismatch unless results share memory with the inputs that cpu's do."""
    mine, cpus = _aliases(got, got_inputs), _aliases(expected, expected_inputs)
    if mine != cpus:
        raise Mismatch(f"aliases: memory of inputs {mine} instead of {cpus}")


def _aliases(results: Any, inputs: list[Tensor]) -> list[int | None]:
    """Return for each result the first input with its storage."""
    storages = [
        t.untyped_storage()._cdata if t.layout == torch.strided else 0 for t in inputs
    ]
    found: list[int | None] = []
    for result in tensors_in(results):
        own = result.untyped_storage()._cdata if result.layout == torch.strided else -1
        found.append(storages.index(own) if own in storages else None)
    return found


def compare_memory(
    got: list[Tensor], expected: list[Tensor], dtypes: list[torch.dtype]
) -> None:
    """Raise Mismatch unless the inputs hold afterwards what cpu's hold.

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
            raise Mismatch(f"input {i} afterwards: {_one_line(error)}") from None
