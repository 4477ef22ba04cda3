"""The times of tasks that somebody has measured, for a simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from npu_dispatch.plan.kernels.times import KernelTimes

__all__ = ["measured_ns"]

# A recording knows the size of elements only. The more common type comes first.
_TYPES = {
    8: ("float64", "int64"),
    4: ("float32", "int32"),
    2: ("bfloat16", "float16"),
    1: ("int8", "uint8", "bool"),
}


def measured_ns(works: Sequence[Mapping[str, Any]], times: KernelTimes) -> list[float]:
    """Return the ns of each work; -1 where nobody has measured it."""

    def of(work: Mapping[str, Any]) -> float:
        if work["type"] != "work" or work["kind"] != "kernel":
            return -1.0
        for dtype in _TYPES.get(work["itemsize"], ()):
            ns = times.ns(work["name"], work["shapes"], dtype)
            if ns is not None:
                return ns
        return -1.0

    return [of(work) for work in works]
