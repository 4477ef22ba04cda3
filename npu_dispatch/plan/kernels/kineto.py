"""Kernel times of a trace that torch.profiler wrote."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

from npu_dispatch.plan.kernels.calls import Call, Calls, KernelTimesError, Shape
from npu_dispatch.plan.kernels.operators import dtype_name, is_floating

__all__ = ["read"]

_EXPECTED = "a trace of torch.profiler (.json or .json.gz)"
_RECORD = "record it with torch.profiler.profile(record_shapes=True) on the real device"
_KERNELS = {"kernel", "gpu_memcpy", "gpu_memset"}
# Copies over the link are no kernels: the sheet says how fast the link is.
_OVER_LINK = ("Memcpy HtoD", "Memcpy DtoH")
_LAUNCHES = ("_runtime", "_driver")  # cuda_runtime, privateuse1_runtime, ...
# Where on the host something happened: a thread and a time.
_Place = tuple[Hashable, float]


def read(path: Path) -> list[Call]:
    """Return the calls of operators that launched kernels, with the kernels' time."""
    events = _events(path)
    try:
        return _calls(path, events)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, KernelTimesError):
            raise
        raise KernelTimesError(
            f"{path}: found an event that torch.profiler does not write "
            f"({type(error).__name__}: {error}), expected {_EXPECTED}; {_RECORD}"
        ) from None


def _events(path: Path) -> list[Any]:
    try:
        data = path.read_bytes()
        if data.startswith(b"\x1f\x8b"):
            data = gzip.decompress(data)
        # Names of kernels may have bytes and characters that JSON forbids.
        found = json.loads(data.decode(errors="replace"), strict=False)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise KernelTimesError(
            f"{path}: cannot be read as JSON ({error}), expected {_EXPECTED}; {_RECORD}"
        ) from None
    events = found.get("traceEvents") if isinstance(found, dict) else None
    if not isinstance(events, list):
        raise KernelTimesError(
            f'{path}: found JSON without a list "traceEvents", expected {_EXPECTED}; '
            f"{_RECORD}"
        )
    return events


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
        raise KernelTimesError(
            f"{path}: found no kernels in {len(events)} events, expected those of the "
            f"device; {_RECORD}, and with its activity, as ProfilerActivity.CUDA"
        )
    if not any(call.shapes for call in calls):
        raise KernelTimesError(
            f'{path}: found no operator with "Input Dims" in {len(calls)} calls, '
            f"expected operators with their shapes; {_RECORD}"
        )
    nested = Calls(calls)
    for event in kernels:
        args = event.get("args", {})
        number, correlation = args.get("External id"), args.get("correlation")
        # Old profilers repeat the correlation where newer ones name the operator.
        host = by_id.get(number) if number != correlation else None
        host = host or launches.get(correlation)
        found = host if isinstance(host, Call) else host and nested.innermost(*host)
        if found:
            found.charge(event["dur"] * 1e3)
    return [call for call in calls if call.ns]


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
