"""Is what the device gave what cpu gave? And where not, would cpu's own differ?"""

import cmath
import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tests.conformance.calls import CPU, Call, Done, attempt, tensors_in


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


def agrees_with_itself(call: Call, expected: Done) -> bool:
    """Return whether cpu's result can be a reference for another device.

    It cannot if cpu gives another one the next time, nor if it gives another one
    when each element of the inputs has memory of its own: `median` reads behind
    the end of an input whose stride is 0.
    """
    apart = replace(call, sample=call.sample.transform(_laid_apart))
    for again in (call, apart):
        done, _ = attempt(again, CPU)
        try:
            assert done is not None
            compare(done.processed, expected.processed)
            compare(done.gradients, expected.gradients)
        except AssertionError:
            return False
    return True


def _laid_apart(x: Any) -> Any:
    """Return x; if it is a tensor with elements that share memory, a copy."""
    strided = isinstance(x, Tensor) and x.layout == torch.strided and not x.is_nested
    if not strided or 0 not in x.stride():
        return x
    return x.detach().contiguous().requires_grad_(x.requires_grad)


def is_rounding(call: Call, got: Done, expected: Done) -> bool:
    """Return whether cpu's result varies as much when inputs are rounded."""
    nudged, _ = attempt(replace(call, nudge=0), CPU)
    if nudged is None:
        return False
    return ill_conditioned(
        [got.processed, got.gradients],
        [expected.processed, expected.gradients],
        [nudged.processed, nudged.gradients],
    )


def is_nearer(call: Call, got: Done, expected: Done) -> bool:
    """Return whether the result of numbers of half precision is nearer to that of
    double precision than cpu's, whose kernels add up in half precision on some
    processors.
    """
    results = [tensors_in([done.processed, done.gradients]) for done in (got, expected)]
    halves = {t.dtype for t in results[1]} & {torch.float16, torch.bfloat16}
    if len(halves) != 1:
        return False
    sample = call.sample.transform(_as_double)
    exact, _ = attempt(replace(call, sample=sample, rounded=min(halves, key=str)), CPU)
    if exact is None:
        return False
    results.append(tensors_in([exact.processed, exact.gradients]))
    for triple in zip(*results, strict=True):
        g, e, x = (t.detach().cpu().to(torch.float64) for t in triple)
        if triple[1].dtype not in halves or e.numel() == 0:
            continue
        if not (g - x).abs().max() <= (e - x).abs().max():
            return False
    return True


def _as_double(x: Any) -> Any:
    if not isinstance(x, Tensor) or not x.is_floating_point():
        return x
    return x.detach().double().requires_grad_(x.requires_grad)


# So many times numbers are moved to see whether a gradient follows one of them.
NUDGES = 4


def is_a_tie(call: Call, got: Done, expected: Done) -> bool:
    """Return whether another one of equal numbers has the gradient, and all else fits.

    The gradient of an operator that selects a number is not unique where others are
    equal to it. That the operator is such a one is told by cpu: equal numbers that are
    moved apart by rounding errors have other gradients. Their sum is the same.
    """
    sample = call.sample
    inputs = tensors_in([sample.input, sample.args, sample.kwargs])
    inputs = [t for t in inputs if t.requires_grad]
    if any(t.layout != torch.strided or t.is_complex() for t in inputs):
        return False
    try:
        compare(got.processed, expected.processed)
        compare(
            list(map(_sums_of_equal, got.gradients, inputs)),
            list(map(_sums_of_equal, expected.gradients, inputs)),
        )
    except MismatchError:
        return False
    apart = sample.transform(_laid_apart)
    for seed in range(NUDGES):
        moved, _ = attempt(replace(call, sample=apart, nudge=seed), CPU)
        if moved and _are_far_apart(moved.gradients, expected.gradients):
            return True
    return False


def _sums_of_equal(gradient: Tensor | None, x: Tensor) -> Tensor | None:
    """Return the gradient's sum over all elements of x that are equal, for each."""
    if gradient is None:
        return None
    _, which = x.detach().unique(return_inverse=True)
    flat = gradient.detach().cpu().double().flatten()
    sums = flat.new_zeros(x.numel()).index_add(0, which.flatten(), flat)
    return sums.to(gradient.dtype)


def _are_far_apart(a: list[Tensor | None], b: list[Tensor | None]) -> bool:
    """Return whether some numbers have not half of their digits in common."""
    for x, y in zip(a, b, strict=True):
        if x is None or y is None or x.numel() == 0:
            continue
        digits = math.sqrt(torch.finfo(x.dtype).eps)
        if (x - y).abs().max() > digits * y.abs().max():
            return True
    return False
