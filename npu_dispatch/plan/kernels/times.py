"""Measured kernel times of a run on the real device, from a trace of torch.profiler."""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import product
from math import exp, log
from pathlib import Path

from npu_dispatch.plan.kernels import kineto
from npu_dispatch.plan.kernels.calls import Call, KernelTimesError, Shape
from npu_dispatch.plan.kernels.operators import (
    UNTOLD,
    amount,
    dtype_name,
    identity,
    writes_argument,
)

__all__ = ["KernelTimes", "KernelTimesError"]

# How far beyond the measured amounts of work a time is still told.
_BEYOND = log(2)

# The logarithms of amounts of work and of times, by amount.
_Curve = list[tuple[float, float]]


class KernelTimes:
    """How long the kernels of a call take, by operator, shapes and type.

    `aten::add.Tensor`, `add_` and `add.out` are one operator. A call's time is the sum
    of the kernels that were launched in it, and of several calls the median.

    `shapes` are those of a task's tensors: first the inputs, then the results. A trace
    has the inputs only, and those of `out=`. So a measured call matches if its shapes
    are the first of those given. Where several do, the one with all but the last is
    taken, which is the result; for an operator that writes one of its arguments, that
    with all of them.

    Tensors of no dimension are left out on both sides: in a trace they look like
    numbers and absent arguments. Calls that differ in other arguments only, such as
    the stride of a convolution, are taken for the same.

    `dtype` is that of the first floating tensor that has a dimension, else of the first
    tensor. A trace does not name that of lists of tensors: their times are told for
    each type.
    """

    def __init__(self, calls: Sequence[Call]) -> None:
        found: dict[tuple[str, str], dict[tuple[Shape, ...], list[float]]]
        found = defaultdict(lambda: defaultdict(list))
        for call in calls:
            name, most = identity(call.operator)
            if call.shapes is not None and name not in UNTOLD:
                found[name, call.dtype][call.shapes[:most]].append(call.ns)
        self._ns = {
            key: {shapes: statistics.median(ns) for shapes, ns in of.items()}
            for key, of in found.items()
        }
        # A list of hundreds of tensors has as many beginnings to compare.
        self._counts: dict[str, set[int]] = defaultdict(set)
        for (name, _), of in self._ns.items():
            self._counts[name].update(map(len, of))
        self._curves = {key: _curves(key[0], of) for key, of in self._ns.items()}

    @classmethod
    def load(cls, path: Path) -> KernelTimes:
        """Return the times in a file.

        Raises KernelTimesError, which says what was found and what was expected.
        """
        calls = kineto.read(path)
        if not any(call.shapes is not None for call in calls):
            raise KernelTimesError(
                f"{path}: found no kernel that an operator with shapes launched, "
                "expected operators and their kernels; record the CPU's activity, too, "
                "and a run without captured graphs"
            )
        return cls(calls)

    def ns(
        self, operator: str, shapes: Sequence[Sequence[int]], dtype: str
    ) -> float | None:
        """Return the time of a call, or None where none like it was measured.

        Where no such call was measured, it is interpolated between calls of the same
        operator, type and numbers of dimensions, by their amounts of work. Beyond
        them it is told up to half and twice the work.
        """
        name, most = identity(operator)
        given = tuple(tuple(shape) for shape in shapes if len(shape))[:most]
        all_first = most is not None or writes_argument(operator)
        keys = [(name, dtype_name(dtype)), (name, "")]
        known = self._counts.get(name, ())
        prefixes = [given[:n] for n in _lengths(len(given), all_first) if n in known]
        for key, prefix in product(keys, prefixes):
            if ns := self._ns.get(key, {}).get(prefix):
                return ns
        for key, prefix in product(keys, prefixes):
            if curve := self._curves.get(key, {}).get(_ranks(prefix)):
                ns = _between(curve, amount(name, prefix))
                if ns is not None:
                    return ns
        return None


def _lengths(given: int, all_first: bool) -> Iterator[int]:
    """Yield how many of the given shapes are compared, the likeliest first."""
    if all_first or given < 2:
        yield from range(given, 0, -1)
    else:
        yield from (given - 1, given, *range(given - 2, 0, -1))
    if not given:
        yield 0  # tensors of no dimension only


def _ranks(shapes: Sequence[Shape]) -> tuple[int, ...]:
    return tuple(map(len, shapes))


def _curves(
    name: str, measured: dict[tuple[Shape, ...], float]
) -> dict[tuple[int, ...], _Curve]:
    """Return a curve for each list of numbers of dimensions."""
    points: dict[tuple[int, ...], dict[int, list[float]]]
    points = defaultdict(lambda: defaultdict(list))
    for shapes, ns in measured.items():
        if work := amount(name, shapes):
            points[_ranks(shapes)][work].append(ns)
    return {
        ranks: [(log(work), log(statistics.median(of[work]))) for work in sorted(of)]
        for ranks, of in points.items()
    }


def _between(curve: _Curve, work: int) -> float | None:
    """Return the ns of an amount of work, on lines between the measured ones."""
    if not work:
        return None
    at = log(work)
    (first, least), (last, most) = curve[0], curve[-1]
    if at in (first, last):
        return exp(least if at == first else most)
    # One amount does not say how the time grows with it.
    if len(curve) == 1 or not first - _BEYOND <= at <= last + _BEYOND:
        return None
    place = min(max(bisect_left(curve, (at,)), 1), len(curve) - 1)
    (x, y), (x_after, y_after) = curve[place - 1 : place + 1]
    slope = (y_after - y) / (x_after - x)
    if first < at < last:
        return exp(y + slope * (at - x))
    # Beyond the ends, chance is not to make it fall or grow faster than the work.
    slope = min(max(slope, 0.0), 1.0)
    return exp(
        least + slope * (at - first) if at < first else most + slope * (at - last)
    )
