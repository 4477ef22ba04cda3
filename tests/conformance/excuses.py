"""When a result of the device may differ from cpu's: cpu's own would, too."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tests.conformance.calls import CPU, Call, Done, attempt
from tests.conformance.compare import MismatchError, compare, ill_conditioned
from tests.conformance.copies import tensors_in


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


def is_rounding(call: Call, got: Done | None, expected: Done | None) -> bool:
    """Return whether cpu's result varies as much when inputs are rounded."""
    nudged, _ = attempt(replace(call, nudge=0), CPU)
    if nudged is None or got is None or expected is None:
        return False
    return ill_conditioned(
        [got.processed, got.gradients],
        [expected.processed, expected.gradients],
        [nudged.processed, nudged.gradients],
    )


def is_nearer(call: Call, got: Done | None, expected: Done | None) -> bool:
    """Return whether the result of numbers of half precision is nearer to that of
    double precision than cpu's, whose kernels add up in half precision on some
    processors.
    """
    if got is None or expected is None:
        return False
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


def is_a_tie(call: Call, got: Done | None, expected: Done | None) -> bool:
    """Return whether another one of equal numbers has the gradient, and all else fits.

    The gradient of an operator that selects a number is not unique where others are
    equal to it. That the operator is such a one is told by cpu: equal numbers that are
    moved apart by rounding errors have other gradients. Their sum is the same.
    """
    if got is None or expected is None:
        return False
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
