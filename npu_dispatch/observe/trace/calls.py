"""Which of a process's logged collectives each traced task was.

The log of collectives and the trace are written apart. A call begins and ends within
its task, on the same stream and under the same name.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable

from npu_dispatch.observe.segment.collectives import LoggedCollective, LoggedTensor
from npu_dispatch.observe.trace.tracks import Call

__all__ = ["PREFIX", "Calls"]

PREFIX = "hccl:"  # of the names of such tasks
_NAME = 23  # bytes that the log has for a name
# The trace's times are made of ticks, by a rate that was measured.
_OFF_NS = 50_000
_ITEM = {
    **dict.fromkeys(("Short", "Half", "BFloat16", "UInt16"), 2),
    **dict.fromkeys(("Int", "Float", "UInt32", "ComplexHalf"), 4),
    **dict.fromkeys(("Long", "Double", "UInt64", "ComplexFloat"), 8),
    "ComplexDouble": 16,
}  # of the others, an element is a byte


class Calls:
    """The calls that one process has begun, for its tasks to be looked up."""

    def __init__(self, calls: Iterable[LoggedCollective]) -> None:
        self._of: dict[tuple[int, int], list[LoggedCollective]] = defaultdict(list)
        for call in calls:
            if call.started_ns:
                self._of[call.device, call.stream].append(call)
        for of_stream in self._of.values():
            of_stream.sort(key=lambda call: call.started_ns)

    def of(
        self, device: int, stream: int, name: str, started: int, ended: int
    ) -> Call | None:
        """Return what a task was; None where it was none, or is not in the log."""
        if not name.startswith(PREFIX):
            return None
        calls = self._of.get((device, stream), [])
        short = name.removeprefix(PREFIX)[:_NAME]
        at = bisect_left(calls, started - _OFF_NS, key=lambda call: call.started_ns)
        near: list[LoggedCollective] = []
        for call in calls[at:]:
            if call.started_ns > ended:
                break
            if call.name == short:
                near.append(call)
        if not near:
            return None
        best = min(near, key=lambda call: abs(call.started_ns - started))
        return Call(
            group=best.group.description or best.group.name,
            token=best.group.token,
            seq=best.seq,
            is_message=best.is_message,
            bytes=_bytes(best.tensors),
        )


def _bytes(tensors: Iterable[LoggedTensor]) -> int:
    """Return how much is read, or written where that is more."""
    sums = [0, 0]
    for t in tensors:
        sums[t.is_output] += math.prod(t.sizes) * _ITEM.get(t.dtype, 1)
    return max(sums)
