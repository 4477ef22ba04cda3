"""A table of measured kernel times, and what it says of calls that were not measured.

`calibrate` fills it for this machine, and a trace of torch.profiler for another device.
"""

from __future__ import annotations

import gzip
import json
import statistics
import zlib
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import exp, log, prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Kernel", "KernelTimes", "KernelTimesError", "Told"]

Shape = tuple[int, ...]
_EXPECTED = "a trace of torch.profiler (.json or .json.gz)"
_RECORD = "record it with torch.profiler.profile(record_shapes=True) on the real device"
_KERNELS = {"kernel", "gpu_memcpy", "gpu_memset"}
# Copies over the link are no kernels: the spec says how fast the link is.
_OVER_LINK = ("Memcpy HtoD", "Memcpy DtoH")
_ON_HOST = ("cpu_op", "user_annotation")


# As a trace names C++ types, in small letters.
_DTYPES = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "long int": "int64",
    "int": "int32",
    "short int": "int16",
    "signed char": "int8",
    "unsigned char": "uint8",
    "complex<float>": "complex64",
    "complex<double>": "complex128",
}

# How far beyond the measured sizes a time is still told.
_BEYOND = log(2)
# Of the fit at a size: measurements count by this power of their nearness, and a size
# that they do not tell apart is taken not to change the rate.
_NEARNESS, _DAMPING = 4, 1e-9

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

# Of two matrices, behind the summand where there is one.
_PRODUCTS = ("mm", "bmm", "addmm", "addbmm", "baddbmm", "_addmm_activation")
_LSTM = "mkldnn_rnn_layer"
# Their tensors are a list, of any length.
_OF_LISTS = ("_foreach_", "_fused_", "cat")


class Kernel(NamedTuple):
    """A measured call of an operator, or what its shapes and type are."""

    operator: str
    shapes: tuple[Shape, ...]
    dtype: str
    ns: float

    def text(self) -> str:
        """Return "aten::mm float32 64x32 32x8 = 5.32", whose time is in us."""
        shapes = ("x".join(map(str, shape)) for shape in self.shapes)
        return f"{' '.join([self.operator, self.dtype, *shapes])} = {self.ns / 1e3:.4g}"

    @classmethod
    def of_text(cls, text: str) -> Kernel:
        called, _, us = text.partition(" = ")
        operator, dtype, *shapes = called.split()
        sizes = (tuple(map(int, shape.split("x"))) for shape in shapes)
        return cls(operator, tuple(sizes), dtype, float(us) * 1e3)


class Told(NamedTuple):
    """A time, and whether a call of these shapes was measured; else it is between."""

    ns: float
    exact: bool


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


def read(path: Path) -> list[Kernel]:
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
        return _kernels(path, events)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, KernelTimesError):
            raise
        what = f"found an event that torch.profiler does not write ({error!r})"
        raise _refused(path, what) from None


def _refused(path: Path, found: str, expected: str = _EXPECTED) -> KernelTimesError:
    return KernelTimesError(f"{path}: {found}, expected {expected}; {_RECORD}")


def _kernels(path: Path, events: Sequence[dict[str, Any]]) -> list[Kernel]:
    by_id: dict[int, Call] = {}
    kernels = []
    for event in events:
        category = event.get("cat", "") if event["ph"] == "X" else ""
        if category in _KERNELS:
            if not event["name"].startswith(_OVER_LINK):
                kernels.append(event)
        elif category in _ON_HOST:
            by_id[event["args"].get("External id", -1)] = _call(event)
    if not kernels:
        found = f"found no kernels in {len(events)} events"
        activity = "those of the device, and its activity, as ProfilerActivity.CUDA"
        raise _refused(path, found, activity)
    calls = [*by_id.values()]
    _nest(calls)
    for event in kernels:
        if launcher := by_id.get(event.get("args", {}).get("External id")):
            launcher.charge(event["dur"] * 1e3)
    timed = [
        Kernel(call.operator, call.shapes, call.dtype, call.ns)
        for call in calls
        if call.ns and call.shapes is not None and call.operator.startswith("aten::")
    ]
    if not timed:
        found = "found no kernel that an operator with shapes launched"
        alike = "operators and their kernels, without captured graphs"
        raise _refused(path, found, f"{alike}, and the CPU's activity")
    return timed


def _nest(calls: Sequence[Call]) -> None:
    """Tell each call what called it, which was under way on its thread."""
    before: dict[Hashable, Call] = {}
    for call in sorted(calls, key=lambda call: (call.begun, -call.ended)):
        outer = before.get(call.thread)
        while outer and outer.ended <= call.begun:
            outer = outer.outer
        call.outer = outer
        before[call.thread] = call


def _call(event: dict[str, Any]) -> Call:
    thread, begun = (event["pid"], event["tid"]), event["ts"]
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
        (not dim, not dtype_name(name).startswith(("float", "bfloat")), i)
        for i, (dim, name) in enumerate(zip(dims, types, strict=False))
        if name not in ("", "Scalar", "ScalarList", "TensorList", "GenericList")
    ]
    no_dimension, _, i = min(tensors, default=(True, True, -1))
    if i < 0 or (no_dimension and "TensorList" in types):
        return ""
    return dtype_name(types[i])


def dtype_name(name: str) -> str:
    """Return "float32" of "float" or "torch.float32"."""
    small = name.rpartition("::")[2].removeprefix("torch.").lower()
    return _DTYPES.get(small, small)


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

    def __init__(self, kernels: Iterable[Kernel]) -> None:
        found: dict[tuple[str, str], dict[tuple[Shape, ...], list[float]]]
        found = defaultdict(lambda: defaultdict(list))
        for operator, shapes, dtype, ns in kernels:
            name, most, _ = _identity(operator)
            if name not in _UNTOLD:
                found[name, dtype][shapes[:most]].append(ns)
        self._ns = {
            key: {shapes: statistics.median(ns) for shapes, ns in of.items()}
            for key, of in found.items()
        }
        # A list of hundreds of tensors has as many beginnings to compare.
        self._counts: dict[str, set[int]] = defaultdict(set)
        points: dict[tuple[str, str, int], list[tuple[float, ...]]] = defaultdict(list)
        for (name, dtype), of in self._ns.items():
            self._counts[name].update(map(len, of))
            for shapes, ns in of.items():
                if work := _work(name, shapes):
                    point = log(ns / work.amount), *work.sizes
                    points[name, dtype, work.tensors].append(point)
        self._points = {key: np.array(of) for key, of in points.items()}

    @classmethod
    def load(cls, path: Path) -> KernelTimes:
        """Return the times in a file.

        Raises KernelTimesError, which says what was found and what was expected.
        """
        return cls(read(path))

    def ns(
        self, operator: str, shapes: Sequence[Sequence[int]], dtype: str
    ) -> Told | None:
        """Return the time of a call, or None where none like it was measured.

        Where no such call was measured, its rate is interpolated between those of calls
        of the same operator and type, by the logarithms of their sizes. Beyond them it
        is told up to half and twice of each size.
        """
        name, most, writes = _identity(operator)
        given = tuple(tuple(shape) for shape in shapes if len(shape))[:most]
        all_first = most is not None or writes
        keys = [(name, dtype_name(dtype)), (name, "")]
        known = self._counts.get(name, ())
        prefixes = [given[:n] for n in _lengths(len(given), all_first) if n in known]
        if name.startswith(_OF_LISTS):
            prefixes = [given if all_first else given[:-1]]
        for key, prefix in product(keys, prefixes):
            if ns := self._ns.get(key, {}).get(prefix):
                return Told(ns, True)
        if _parts(name, given):
            prefixes = [given]
        for key, prefix in product(keys, prefixes):
            work = _work(name, prefix)
            points = self._points.get((*key, work.tensors)) if work else None
            if work and points is not None:
                rate = _between(points, np.array(work.sizes))
                if rate is not None:
                    return Told(work.amount * exp(rate), False)
        return None


def _lengths(given: int, all_first: bool) -> Iterator[int]:
    """Yield how many of the given shapes are compared, the likeliest first."""
    if all_first or given < 2:
        yield from range(given, 0, -1)
    else:
        yield from (given - 1, given, *range(given - 2, 0, -1))
    if not given:
        yield 0  # tensors of no dimension only


def _between(points: npt.NDArray[Any], at: npt.NDArray[Any]) -> float | None:
    """Return the logarithm of ns for each amount of work at these sizes.

    A point is that of a measured call, and its sizes. The plane is fitted that is
    nearest to the points, of which those count most that are near.
    """
    rates, sizes = points[:, 0], points[:, 1:]
    low, high = sizes.min(0), sizes.max(0)
    # One measurement does not say how the time grows.
    if len(rates) < 2 or (at < low - _BEYOND).any() or (at > high + _BEYOND).any():
        return None
    inside = at.clip(low, high)
    away = sizes - inside
    weights = 1 / (np.linalg.norm(sizes - at, axis=1) + 1e-3) ** _NEARNESS
    weights /= weights.sum()
    columns = np.hstack([np.ones((len(rates), 1)), away]) * np.sqrt(weights)[:, None]
    damping = np.diag([0.0] + [_DAMPING] * len(at))
    wanted = columns.T @ (rates * np.sqrt(weights))
    rate, *slopes = np.linalg.solve(columns.T @ columns + damping, wanted)
    # Beyond the ends, chance is not to make it fall or grow faster than the work.
    return float(rate + np.clip(slopes, -1, 0) @ (at - inside))


class _Work(NamedTuple):
    amount: float  # which the time of large calls is proportional to
    sizes: tuple[float, ...]  # what the rate depends on, as logarithms
    tensors: int = 0  # calls with other numbers of tensors are not compared


def _work(name: str, shapes: Sequence[Shape]) -> _Work | None:
    """Return the work of a call; None where it has none."""
    if parts := _parts(name, shapes):
        return _Work(prod(parts), tuple(log(part) for part in parts))
    elements = sum(prod(shape) for shape in shapes)
    if not elements:
        return None
    if name.startswith(_OF_LISTS):
        return _Work(elements, (log(elements), log(len(shapes))))
    return _Work(elements, (log(elements),), len(shapes))


def _parts(name: str, given: Sequence[Shape]) -> list[int]:
    """Return the factors of the number of multiplications; [] of other operators."""
    shapes: list[Shape] = [*given, (), (), ()]
    backward = name.endswith("_backward")
    found: list[int] = []
    if name in _PRODUCTS:
        a, b, *_ = shapes["add" in name :]
        found = [*a, b[-1]] if b else []
    elif name in ("convolution", "convolution_backward"):
        result, image, weight = shapes[:3] if backward else (shapes[0], *shapes[:2])
        wide = [shape for shape in shapes if len(shape) == len(image)]
        if len(wide) < 2 or len(image) < 3 or len(weight) < 3:
            return []
        if not backward:
            result = wide[-1] if len(wide) > 2 else image
        groups = max(image[1] // max(weight[1], 1), 1)
        pixels = result[0] * prod(result[2:])
        found = [pixels, weight[1], weight[0] // groups, groups, prod(weight[2:])]
        if backward:
            found[0] *= max(len(wide) - 3, 0) or 2  # results that are wanted
    elif name.startswith(_ATTENTION):
        q, k, *_ = shapes[1 if backward else 0 :]
        found = [prod(q[:-2]), *q[-2:], k[-2]] if len(k) > 1 else []
    elif name.startswith(_LSTM):
        x, weight = shapes[:2]
        found = [*x, weight[0]] if len(x) > 2 else []
    return found if all(found) else []
