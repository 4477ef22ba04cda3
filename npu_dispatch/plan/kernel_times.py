"""Measured kernel times of a run on the real device, from a trace of torch.profiler."""

from __future__ import annotations

import gzip
import json
import statistics
import zlib
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import exp, log, prod
from pathlib import Path
from typing import Any

__all__ = ["KernelTimes", "KernelTimesError"]

Shape = tuple[int, ...]
_EXPECTED = "a trace of torch.profiler (.json or .json.gz)"
_RECORD = "record it with torch.profiler.profile(record_shapes=True) on the real device"
_KERNELS = {"kernel", "gpu_memcpy", "gpu_memset"}
# Copies over the link are no kernels: the spec says how fast the link is.
_OVER_LINK = ("Memcpy HtoD", "Memcpy DtoH")
_LAUNCHES = ("_runtime", "_driver")  # cuda_runtime, privateuse1_runtime, ...
# Where on the host something happened: a thread and a time.
_Place = tuple[Hashable, float]


# As a trace names C++ types, and as c10 names scalar types, in small letters.
_DTYPES = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "long int": "int64",
    "long": "int64",
    "int": "int32",
    "short int": "int16",
    "short": "int16",
    "signed char": "int8",
    "char": "int8",
    "unsigned char": "uint8",
    "byte": "uint8",
    "complex<float>": "complex64",
    "complexfloat": "complex64",
    "complex<double>": "complex128",
    "complexdouble": "complex128",
}

# How far beyond the measured amounts of work a time is still told.
_BEYOND = log(2)

# The logarithms of amounts of work and of times, by amount.
_Curve = list[tuple[float, float]]


# Operators that have another name on other devices. The number says how many of
# their first tensors are compared: the others are a library's own.
_FAMILIES = {
    "cudnn_batch_norm": ("native_batch_norm", 3),
    "cudnn_batch_norm_backward": ("native_batch_norm_backward", 3),
    "native_batch_norm": ("native_batch_norm", 3),
    "native_batch_norm_backward": ("native_batch_norm_backward", 3),
    "convolution_overrideable": ("convolution", None),
    "convolution_backward_overrideable": ("convolution_backward", None),
}
_ATTENTION = "_scaled_dot_product_"

# Their indices decide the time, and no trace has the shapes of those.
_UNTOLD = {"index", "index_put", "_index_put_impl"}

# Where the first of the two factors of a matrix product is.
_PRODUCTS = {
    "mm": 0,
    "bmm": 0,
    "addmm": 1,
    "addbmm": 1,
    "baddbmm": 1,
    "_addmm_activation": 1,
}


class KernelTimesError(ValueError):
    """A file that holds no kernel times. The message says what to do about it."""


@dataclass(slots=True, eq=False)
class Call:
    """One call of an ATen operator, on the host's clock of the trace."""

    operator: str
    # Of its tensors, without those of no dimension; None: the trace does not tell.
    shapes: tuple[Shape, ...] | None
    dtype: str  # "": the trace does not tell
    thread: Hashable
    begun: float
    ended: float
    ns: float = 0.0  # of the kernels that it launched, nested calls included
    outer: Call | None = None  # the call that made it

    def charge(self, ns: float) -> None:
        """Count a kernel for this call, which launched it, and for those around it.

        Those around it count, too, because operators are nested differently on
        each device: a `convolution` is one task here, and there it calls a
        library's own operator, which launches the kernel.
        """
        call: Call | None = self
        while call:
            call.ns += ns
            call = call.outer


def read(path: Path) -> list[Call]:
    """Return the calls of operators that launched kernels, with the kernels' time."""
    try:
        data = path.read_bytes()
        if data.startswith(b"\x1f\x8b"):
            data = gzip.decompress(data)
        # Names of kernels may have bytes and characters that JSON forbids.
        found = json.loads(data.decode(errors="replace"), strict=False)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise _refused(path, f"cannot be read as JSON ({error})") from None
    events = found.get("traceEvents") if isinstance(found, dict) else None
    if not isinstance(events, list):
        raise _refused(path, 'found JSON without a list "traceEvents"')
    try:
        return _calls(path, events)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, KernelTimesError):
            raise
        what = f"found an event that torch.profiler does not write ({error!r})"
        raise _refused(path, what) from None


def _refused(path: Path, found: str, expected: str = _EXPECTED) -> KernelTimesError:
    return KernelTimesError(f"{path}: {found}, expected {expected}; {_RECORD}")


def _calls(path: Path, events: Sequence[dict[str, Any]]) -> list[Call]:
    calls: list[Call] = []
    by_id: dict[int, Call | _Place] = {}  # what has an External id on the host
    launches: dict[int, _Place] = {}  # by correlation
    kernels = []
    for event in events:
        category = event.get("cat", "") if event["ph"] == "X" else ""
        if category in _KERNELS:
            if not event["name"].startswith(_OVER_LINK):
                kernels.append(event)
        elif category == "cpu_op" and event["name"].startswith("aten::"):
            call = _call(event)
            calls.append(call)
            by_id[event["args"].get("External id", -1)] = call
        elif category in ("cpu_op", "user_annotation"):
            by_id[event["args"].get("External id", -1)] = _place(event)
        elif category.endswith(_LAUNCHES):
            launches[event["args"].get("correlation", -1)] = _place(event)
    if not kernels:
        found = f"found no kernels in {len(events)} events"
        activity = "those of the device, and its activity, as ProfilerActivity.CUDA"
        raise _refused(path, found, activity)
    if not any(call.shapes for call in calls):
        found = f'found no operator with "Input Dims" in {len(calls)} calls'
        raise _refused(path, found, "operators with their shapes")
    by_thread = _nested(calls)
    for event in kernels:
        args = event.get("args", {})
        number, correlation = args.get("External id"), args.get("correlation")
        # Old profilers repeat the correlation where newer ones name the operator.
        host = by_id.get(number) if number != correlation else None
        host = host or launches.get(correlation)
        launcher = (
            host if isinstance(host, Call) else host and _innermost(by_thread, *host)
        )
        if launcher:
            launcher.charge(event["dur"] * 1e3)
    return [call for call in calls if call.ns]


def _nested(calls: Sequence[Call]) -> dict[Hashable, list[Call]]:
    """Return the calls of each thread as they began, and tell each what called it."""
    by_thread: dict[Hashable, list[Call]] = defaultdict(list)
    for call in sorted(calls, key=lambda call: (call.begun, -call.ended)):
        before = by_thread[call.thread]
        outer = before[-1] if before else None
        while outer and outer.ended <= call.begun:
            outer = outer.outer
        call.outer = outer
        before.append(call)
    return by_thread


def _innermost(
    by_thread: Mapping[Hashable, list[Call]], thread: Hashable, at: float
) -> Call | None:
    """Return the innermost call that was under way on a thread."""
    calls = by_thread.get(thread, [])
    place = bisect_right(calls, at, key=lambda call: call.begun)
    call = calls[place - 1] if place else None
    # A clock of whole microseconds may show a launch at the end of its call.
    while call and call.ended < at:
        call = call.outer
    return call


def _place(event: dict[str, Any]) -> _Place:
    return (event["pid"], event["tid"]), event["ts"]


def _call(event: dict[str, Any]) -> Call:
    thread, begun = _place(event)
    args = event["args"]
    dims, types = args.get("Input Dims"), args.get("Input type", [])
    shapes = None if dims is None else _shapes(dims, types)
    dtype = _dtype(dims or [], types)
    return Call(event["name"], shapes, dtype, thread, begun, begun + event["dur"])


def _shapes(dims: Sequence[Any], types: Sequence[str]) -> tuple[Shape, ...] | None:
    found: list[Shape] = []
    for i, dim in enumerate(dims):
        if dim and isinstance(dim[0], list):
            found += (tuple(shape) for shape in dim if shape)
        elif dim:
            found.append(tuple(dim))
        elif types[i : i + 1] == ["TensorList"]:
            return None  # the profiler leaves out the shapes of long lists
    return tuple(found)


def _dtype(dims: Sequence[Any], types: Sequence[str]) -> str:
    """Return the type of the first floating tensor, else of the first tensor.

    Tensors of no dimension are asked last: a number in Python is such a tensor, too.
    """
    tensors = [
        (not dim, not is_floating(dtype_name(name)), i)
        for i, (dim, name) in enumerate(zip(dims, types, strict=False))
        if name not in ("", "Scalar", "ScalarList", "TensorList", "GenericList")
    ]
    no_dimension, _, i = min(tensors, default=(True, True, -1))
    if i < 0 or (no_dimension and "TensorList" in types):
        return ""
    return dtype_name(types[i])


def dtype_name(name: str) -> str:
    """Return "float32" of "float", "torch.float32" or "Float"."""
    small = name.rpartition("::")[2].removeprefix("torch.").lower()
    return _DTYPES.get(small, small)


def is_floating(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))


def _identity(operator: str) -> tuple[str, int | None, bool]:
    """Return "add" of "aten::add_.Tensor", how many tensors are compared, and whether
    its result is one of its arguments.
    """
    base, _, overload = operator.rpartition("::")[2].partition(".")
    in_place = base.endswith("_") and not base.endswith("__")
    base = base[:-1] if in_place else base
    name, most = _FAMILIES.get(base, (base, None))
    if base.startswith(_ATTENTION) and "attention" in base:
        backward = "_backward" if base.endswith("_backward") else ""
        name, most = f"{_ATTENTION}attention{backward}", 4 if backward else 3
    return name, most, in_place or "out" in overload


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
            name, most, _ = _identity(call.operator)
            if call.shapes is not None and name not in _UNTOLD:
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
        calls = read(path)
        if not any(call.shapes is not None for call in calls):
            found = "found no kernel that an operator with shapes launched"
            alike = "operators and their kernels, without captured graphs"
            raise _refused(path, found, f"{alike}, and the CPU's activity")
        return cls(calls)

    def ns(
        self, operator: str, shapes: Sequence[Sequence[int]], dtype: str
    ) -> float | None:
        """Return the time of a call, or None where none like it was measured.

        Where no such call was measured, it is interpolated between calls of the same
        operator, type and numbers of dimensions, by their amounts of work. Beyond
        them it is told up to half and twice the work.
        """
        name, most, writes = _identity(operator)
        given = tuple(tuple(shape) for shape in shapes if len(shape))[:most]
        all_first = most is not None or writes
        keys = [(name, dtype_name(dtype)), (name, "")]
        known = self._counts.get(name, ())
        prefixes = [given[:n] for n in _lengths(len(given), all_first) if n in known]
        for key, prefix in product(keys, prefixes):
            if ns := self._ns.get(key, {}).get(prefix):
                return ns
        for key, prefix in product(keys, prefixes):
            if curve := self._curves.get(key, {}).get(tuple(map(len, prefix))):
                ns = _between(curve, _amount(name, prefix))
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


def _curves(
    name: str, measured: dict[tuple[Shape, ...], float]
) -> dict[tuple[int, ...], _Curve]:
    """Return a curve for each list of numbers of dimensions."""
    points: dict[tuple[int, ...], dict[int, list[float]]]
    points = defaultdict(lambda: defaultdict(list))
    for shapes, ns in measured.items():
        if work := _amount(name, shapes):
            points[tuple(map(len, shapes))][work].append(ns)
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


def _amount(name: str, shapes: Sequence[Shape]) -> int:
    """Return a number that the time of large calls is proportional to.

    It is the number of multiplications of matrix products, of convolutions without
    strides and of attention; of other operators, that of elements.
    """
    counted, backward = 0, name.endswith("_backward")
    none: Shape = ()
    if name in _PRODUCTS:
        a, b, *_ = [*shapes[_PRODUCTS[name] :], none, none]
        counted = prod(a) * b[-1] if b else 0
    elif name in ("convolution", "convolution_backward"):
        # Of the input, or the gradient of the output, and the weight.
        a, b, *_ = [*shapes[:: 2 if backward else 1], none, none]
        counted = prod(a) * prod(b) // max(a[1], 1) if b and len(a) > 2 else 0
    elif name.startswith(_ATTENTION):
        a, b, *_ = [*shapes[1 if backward else 0 :], none, none]
        counted = prod(a) * b[-2] if len(b) > 1 else 0
    return counted or sum(prod(shape) for shape in shapes)
