"""What collectives have cost: mirrors csrc/distributed/core/collectives.h, too."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from npu_dispatch.observe.segment.collectives import (
    LOG_AT,
    CollectiveGroup,
    read_groups,
)
from npu_dispatch.observe.segment.layout import OFFSETS, TIME_BUCKETS, text_of
from npu_dispatch.observe.segment.values import Histogram

__all__ = ["CollectiveTotal", "HostPlace", "read_host_place", "read_totals"]

# known, group, name, failed, bytes, queued, waited, exposed, host wait, run: count,
# sum, buckets
_TOTAL = struct.Struct(f"<2Q24s6Q2Q{TIME_BUCKETS}Q56x")
_TOTALS = 256  # kCollectiveTotals
# changes, seen, since, ooms, oom, in the loader, line
_PLACE = struct.Struct("<6Q152s56x")

Read = Callable[[int, int], bytes]


class CollectiveTotal(NamedTuple):
    """The calls of one name in one group. Times are nanoseconds."""

    group: CollectiveGroup
    name: str  # "all_reduce"
    failed: int
    bytes: int  # that the rank gave, or else received
    queued_ns: int  # from the call to its start
    waited_ns: int  # of `run`: until the last rank had called, too
    exposed_ns: int  # of `run`: no other stream of the device ran
    host_wait_ns: int  # of exposed_ns: host threads waited for the device
    run: Histogram  # from start to end


class HostPlace(NamedTuple):
    """Where the main thread of a process is, by its own sampler."""

    seen_ns: int  # CLOCK_MONOTONIC
    since_ns: int  # since when it has been seen there
    oom_ns: int  # when an allocation was last seen to have failed; 0: never
    in_loader: bool  # within torch.utils.data
    line: str  # "train.py:12 in step"


def read_totals(size: int, read: Read) -> list[CollectiveTotal]:
    """Return the totals of a segment of `size` bytes; none when it has none."""
    groups = read_groups(size, read)
    if groups is None:
        return []
    found = []
    data = read(LOG_AT + OFFSETS["CollectiveLog.totals"], _TOTAL.size * _TOTALS)
    for known, group, name, *sums in _TOTAL.iter_unpack(data):
        if not known:
            break
        if group not in groups:
            continue
        count, total, *buckets = sums[6:]
        run = Histogram(count, total, tuple(buckets), per_octave=4)
        failed, given, queued, waited, exposed, host = sums[:6]
        found.append(
            CollectiveTotal(
                group=groups[group],
                name=text_of(name),
                failed=failed,
                bytes=given,
                queued_ns=queued,
                waited_ns=waited,
                exposed_ns=exposed,
                host_wait_ns=host,
                run=run,
            )
        )
    return found


def read_host_place(size: int, read: Read) -> HostPlace | None:
    """Return where the host is; None where that is not known."""
    if read_groups(size, read) is None:
        return None
    at = LOG_AT + OFFSETS["CollectiveLog.host"]
    for _ in range(8):  # the sampler writes once a second
        changes, seen, since, _, oom, loader, line = _PLACE.unpack(
            read(at, _PLACE.size)
        )
        again = _PLACE.unpack(read(at, _PLACE.size))[0]
        if not seen:
            return None
        if changes == again and changes % 2 == 0:
            return HostPlace(seen, since, oom, bool(loader), text_of(line))
    return None
