"""Kernel times of a report of Nsight Systems that was exported to SQLite."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

from npu_dispatch.plan.kernels.calls import Call, Calls, KernelTimesError, Shape, Trace

__all__ = ["read"]

_RECORD = (
    "record it with nsys profile --trace=cuda,nvtx, and in the program with "
    "torch.autograd.profiler.emit_nvtx(record_shapes=True); then "
    "nsys export --type sqlite"
)
_RUNTIME, _NVTX = "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
_KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
# What else runs on the device, without copies over the link: the sheet says how fast
# that is. A report has those tables that are not empty.
_OTHERS = {
    "CUPTI_ACTIVITY_KIND_MEMCPY": "WHERE copyKind NOT IN (1, 2)",
    "CUPTI_ACTIVITY_KIND_MEMSET": "",
}

# Of a range that emit_nvtx writes: "aten::mm, seq = 3, sizes = [[64, 64], [64, 64]]".
_RANGE = re.compile(r"(aten::[\w.]+)(?:,|$)")
_SIZES = ", sizes = "
# 59 is the type of ranges that are pushed and popped, so nested on a thread.
_RANGES_QUERY = f"""
    SELECT coalesce(n.text, s.value), n.globalTid, n.start, n.end
    FROM {_NVTX} AS n LEFT JOIN StringIds AS s ON s.id = n.textId
    WHERE n.eventType = 59 AND n.end IS NOT NULL
"""
# A correlation is one of its process, which the upper bits of both ids name.
_LAUNCHES_QUERY = f"""
    SELECT globalTid >> 24, correlationId, globalTid, start FROM {_RUNTIME}
"""
_KERNELS_QUERY = "SELECT globalPid >> 24, correlationId, end - start FROM"


def read(path: Path) -> Trace:
    """Return the calls of operators that launched kernels, with the kernels' time."""
    try:
        uri = f"{path.resolve().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as db:
            return _trace(path, db)
    except sqlite3.Error as error:
        raise KernelTimesError(
            f"{path}: found SQLite that cannot be read ({error}), expected an export "
            f"of Nsight Systems; {_RECORD}"
        ) from None


def _trace(path: Path, db: sqlite3.Connection) -> Trace:
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
    for needed in (_KERNEL, _RUNTIME, _NVTX, "StringIds"):
        if needed not in tables:
            raise KernelTimesError(
                f"{path}: found no table {needed}, expected an export of Nsight "
                f"Systems with kernels and NVTX ranges; {_RECORD}"
            )
    calls = []
    for text, thread, begun, ended in db.execute(_RANGES_QUERY):
        if name := _RANGE.match(text or ""):
            shapes = _shapes(text)
            # Ranges do not name types.
            calls.append(Call(name[1], shapes, "", thread, begun, ended))
    if not any(call.shapes for call in calls):
        raise KernelTimesError(
            f"{path}: found no NVTX range with sizes in {len(calls)} of operators, "
            f'expected such as "aten::mm, seq = 3, sizes = [[64, 64], [64, 64]]"; '
            f"{_RECORD}"
        )
    nested = Calls(calls)
    launches = {
        (process, correlation): (thread, at)
        for process, correlation, thread, at in db.execute(_LAUNCHES_QUERY)
    }
    for table, which in {_KERNEL: "", **_OTHERS}.items():
        if table in tables:
            for *launch, ns in db.execute(f"{_KERNELS_QUERY} {table} {which}"):
                host = launches.get(tuple(launch))
                nested.charge(host and nested.innermost(*host), ns)
    return nested.trace()


def _shapes(text: str) -> tuple[Shape, ...] | None:
    place = text.find(_SIZES)
    if place < 0:
        return None
    try:
        sizes, _ = json.JSONDecoder().raw_decode(text, place + len(_SIZES))
        return tuple(tuple(shape) for shape in sizes if shape)
    except (TypeError, ValueError):
        return None  # cut off
