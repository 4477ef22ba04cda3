"""Calls of operators in a trace, and the kernels that were launched in them."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

__all__ = ["Call", "Calls", "KernelTimesError", "Shape"]

Shape = tuple[int, ...]


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


class Calls:
    """All calls of a trace by thread, where they are nested or apart."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._of: dict[Hashable, list[Call]] = defaultdict(list)
        for call in sorted(calls, key=lambda call: (call.begun, -call.ended)):
            before = self._of[call.thread]
            outer = before[-1] if before else None
            while outer and outer.ended <= call.begun:
                outer = outer.outer
            call.outer = outer
            before.append(call)
        self._starts = {
            thread: [call.begun for call in calls] for thread, calls in self._of.items()
        }

    def innermost(self, thread: Hashable, at: float) -> Call | None:
        """Return the innermost call that was under way on a thread."""
        place = bisect_right(self._starts.get(thread, ()), at)
        call = self._of[thread][place - 1] if place else None
        # A clock of whole microseconds may show a launch at the end of its call.
        while call and call.ended < at:
            call = call.outer
        return call
