"""What groups of ranks have done together, added up from the log of collectives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from npu_dispatch.stats.collectives import (
    CollectiveGroup,
    CollectiveLog,
    LoggedCollective,
)

__all__ = ["GroupTotal", "GroupTotals"]

_BYTES = {
    **dict.fromkeys(("Double", "Long", "ComplexFloat", "UInt64"), 8),
    **dict.fromkeys(("Float", "Int", "ComplexHalf", "UInt32", "QInt32"), 4),
    **dict.fromkeys(("Half", "BFloat16", "Short", "UInt16"), 2),
    "ComplexDouble": 16,
}


_TOKEN = 8  # letters of it, which are enough to tell groups apart


class GroupTotal(NamedTuple):
    name: str
    token: str  # the same on all its ranks, and of no other group; "" of one rank
    calls: int
    given_bytes: int
    ns: int


class GroupTotals:
    """The sums of one process's groups.

    The log holds the last 1,024 calls, so update() is to be called about once a
    second; calls that the log has lost by then are not counted.
    """

    def __init__(self) -> None:
        self._sums: dict[CollectiveGroup, GroupTotal] = {}
        self._counted: set[int] = set()  # numbers of calls that the log still has

    def update(self, log: CollectiveLog) -> None:
        """Add the calls that have ended since the last time."""
        oldest = log.calls[0].number if log.calls else 0
        self._counted = {number for number in self._counted if number >= oldest}
        for group in log.groups:
            none = GroupTotal(_title(group), group.token[:_TOKEN], 0, 0, 0)
            self._sums.setdefault(group, none)
        for call in log.calls:
            if call.state != "completed" or call.number in self._counted:
                continue
            self._counted.add(call.number)
            before = self._sums[call.group]
            self._sums[call.group] = before._replace(
                calls=before.calls + 1,
                given_bytes=before.given_bytes + _given(call),
                ns=before.ns + max(0, call.ended_ns - call.started_ns),
            )

    def rows(self) -> Sequence[GroupTotal]:
        return list(self._sums.values())


def _title(group: CollectiveGroup) -> str:
    known = group.description not in ("", "undefined")  # the latter is torch's
    return group.description if known else group.name


def _given(call: LoggedCollective) -> int:
    """Return the bytes of what this rank put into a call, or else of its result."""
    given = [t for t in call.tensors if not t.is_output] or call.tensors
    return sum(math.prod(t.sizes) * _BYTES.get(t.dtype, 1) for t in given)
