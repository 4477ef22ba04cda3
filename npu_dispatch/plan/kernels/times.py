"""Measured kernel times of a run on the real device.

They come from a trace of torch.profiler, or from Nsight Systems.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import product
from math import exp, log
from pathlib import Path

from npu_dispatch.plan.kernels import kineto, nsight
from npu_dispatch.plan.kernels.calls import KernelTimesError, Shape, Trace
from npu_dispatch.plan.kernels.operators import (
    UNTOLD,
    amount,
    dtype_name,
    identity,
    writes_argument,
)

__all__ = ["How", "KernelTimes", "KernelTimesError", "Measured"]

# How far beyond the measured amounts of work a time is still told.
_BEYOND = log(2)

# The logarithms of amounts of work and of times, by amount.
_Curve = list[tuple[float, float]]


class How(Enum):
    EXACT = "exact"  # such calls were measured
    INTERPOLATED = "interpolated"  # calls with less and with more work were
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Measured:
    ns: float | None  # None: missing
    how: How


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
    tensor. Where a trace does not name types, its times are told for each type: those
    of Nsight Systems do not, and those of torch.profiler not for lists of tensors.
    """

    def __init__(self, trace: Trace) -> None:
        # The part of all kernels' time in the trace that belongs to an operator.
        self.attributed = trace.attributed
        found: dict[tuple[str, str], dict[tuple[Shape, ...], list[float]]]
        found = defaultdict(lambda: defaultdict(list))
        for call in trace.calls:
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
        """Return the times in a file, whose format is told by its content.

        Raises KernelTimesError, which says what was found and what was expected.
        """
        try:
            with path.open("rb") as file:
                is_sqlite = file.read(16) == b"SQLite format 3\0"
        except OSError as error:
            raise KernelTimesError(
                f"{path}: cannot be read: {error.strerror}; expected "
                f"{kineto.EXPECTED}, or an export of Nsight Systems (.sqlite)"
            ) from None
        trace = (nsight if is_sqlite else kineto).read(path)
        if not any(call.shapes is not None for call in trace.calls):
            raise KernelTimesError(
                f"{path}: found no kernel that an operator with shapes launched, "
                "expected operators and their kernels; record the CPU's activity, too, "
                "and a run without captured graphs"
            )
        return cls(trace)

    def ns(
        self, operator: str, shapes: Sequence[Sequence[int]], dtype: str
    ) -> float | None:
        """Return the time of a call, or None where it was not measured."""
        return self.measured(operator, shapes, dtype).ns

    def measured(
        self, operator: str, shapes: Sequence[Sequence[int]], dtype: str
    ) -> Measured:
        """Return the time of a call, and where it is from.

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
                return Measured(ns, How.EXACT)
        for key, prefix in product(keys, prefixes):
            if curve := self._curves.get(key, {}).get(_ranks(prefix)):
                ns = _between(curve, amount(name, prefix))
                if ns is not None:
                    return Measured(ns, How.INTERPOLATED)
        return Measured(None, How.MISSING)


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
