"""Reading the log of collectives, which follows the segment in a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from npu_dispatch.observe.segment import layout
from npu_dispatch.observe.segment.values import Histogram, filled

Read = Callable[[int, int], bytes]

_AT = layout.EXTENSION_AT
_STATES = ("free", "writing", "scheduled", "started", "completed", "failed")
_MESSAGE = 1 << 63
_MOST_RANKS = 1 << 16

# c10::ScalarType and c10d::ReduceOp, by number.
DTYPES = (
    *("Byte", "Char", "Short", "Int", "Long", "Half", "Float", "Double"),
    *("ComplexHalf", "ComplexFloat", "ComplexDouble", "Bool"),
    *("QInt8", "QUInt8", "QInt32", "BFloat16", "QUInt4x2", "QUInt2x4"),
    *("Bits1x8", "Bits2x4", "Bits4x2", "Bits8", "Bits16"),
    *("Float8_e5m2", "Float8_e4m3fn", "Float8_e5m2fnuz", "Float8_e4m3fnuz"),
    *("UInt16", "UInt32", "UInt64"),
)
_REDUCTIONS = (
    *("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"),
    "PREMUL_SUM",
)


class CollectiveGroup(NamedTuple):
    """A group of ranks that the process is in."""

    name: str
    description: str
    token: str  # the same on all its ranks, and of no other group
    rank: int  # this process's in the group
    ranks: tuple[int, ...]  # ranks of the world

    @property
    def title(self) -> str:
        """What the user calls it, or else its name."""
        known = self.description not in ("", "undefined")  # the latter is torch's
        return self.description if known else self.name

    @property
    def global_rank(self) -> int:
        """This process's rank of the world."""
        return self.ranks[self.rank] if self.rank < len(self.ranks) else self.rank


class LoggedTensor(NamedTuple):
    sizes: tuple[int, ...]
    dtype: str  # as torch's C++ names it, "Float"
    is_output: bool
    peer: int  # rank in the group, of a send or recv; -1: none


class LoggedCollective(NamedTuple):
    """One call. Times are nanoseconds of CLOCK_MONOTONIC, 0: not yet."""

    number: int  # among the process's calls
    group: CollectiveGroup
    seq: int  # in its group: of collectives, or of messages
    is_message: bool
    name: str
    state: str  # scheduled, started, completed, failed
    at: str  # "train.py:12 in step"; "" when not known
    scheduled_ns: int
    started_ns: int
    ended_ns: int
    all_here_ns: int  # when every rank had called
    timeout_ms: int
    root: int  # -1: none
    reduction: str  # "": none
    device: int
    stream: int
    tensors: tuple[LoggedTensor, ...]


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


class CollectiveLog(NamedTuple):
    groups: tuple[CollectiveGroup, ...]
    calls: tuple[LoggedCollective, ...]  # oldest first
    dropped: int  # calls that found no entry free


def _ranks(text: str) -> tuple[int, ...]:
    """Return the ranks of "0-2,5"."""
    found: list[int] = []
    parts = text.split(",")
    if len(text) >= layout.GROUP.room("ranks"):
        parts.pop()  # it may be half a number, for which there was no room
    for part in parts:
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal():
            break  # not written by us
        room = _MOST_RANKS - len(found)
        upto = min(int(last or first) + 1, int(first) + room)
        found += range(int(first), upto)
    return tuple(found)


def _shapes(words: tuple[int, ...]) -> tuple[LoggedTensor, ...]:
    found, at = [], 0
    while at < len(words) and words[at]:
        word, n = words[at], words[at] & 255
        dtype = word >> 8 & 255
        found.append(
            LoggedTensor(
                sizes=words[at + 1 : at + 1 + n],
                dtype=DTYPES[dtype] if dtype < len(DTYPES) else str(dtype),
                is_output=bool(word >> 16 & 1),
                peer=(word >> 32) - 1,
            )
        )
        at += 1 + n
    return tuple(found)


def _head(size: int, read: Read) -> dict[str, Any] | None:
    """Return the head of the log in a file of `size` bytes, or None.

    None says that it has no log of collectives, or one of another layout. `read(at,
    bytes)` gives its bytes.
    """
    if size < _AT + layout.LOG.size:
        return None
    head = layout.LOG_HEAD.read(read(_AT, layout.LOG_HEAD.size))
    known = (
        layout.COLLECTIVES_VERSION,
        layout.CALL.size,
        layout.COLLECTIVES,
        layout.GROUP.size,
        layout.GROUPS,
    )
    return head if tuple(head.values())[: len(known)] == known else None


def _groups(read: Read) -> dict[int, CollectiveGroup]:
    """Return the groups by their place."""
    data = read(_AT + layout.LOG.at["groups"], layout.GROUPS * layout.GROUP.size)
    return {
        place: filled(CollectiveGroup, row, ranks=_ranks(row["ranks"]))
        for place, row in layout.GROUP.rows(data)
    }


def read_world(size: int, read: Read) -> tuple[int, int] | None:
    """Return the process's rank of the world and the world's size.

    None where it has joined none: its first group is the world.
    """
    if _head(size, read) is None:
        return None
    first = layout.GROUP.read(read(_AT + layout.LOG.at["groups"], layout.GROUP.size))
    return (first["rank"], first["size"]) if first["known"] else None


def read_log(size: int, read: Read, site: Callable[[int], str]) -> CollectiveLog | None:
    """Return the log of a file of `size` bytes, or None when it has none.

    `site(number)` gives the line of a call site.
    """
    if (head := _head(size, read)) is None:
        return None
    groups = _groups(read)
    calls = [
        filled(
            LoggedCollective,
            row,
            number=row["state"] // 8,
            group=groups[row["group"]],
            seq=row["seq"] & ~_MESSAGE,
            is_message=bool(row["seq"] & _MESSAGE),
            state=_STATES[min(row["state"] % 8, len(_STATES) - 1)],
            at=site(row["site"]),
            root=row["root"] - 1,
            reduction=dict(enumerate(_REDUCTIONS, 1)).get(row["reduce"], ""),
            device=row["stream"] >> 32,
            stream=row["stream"] & layout.STREAM_ID_MASK,
            tensors=_shapes(row["shapes"]),
        )
        for row in layout.CALL.steady(
            read,
            _AT + layout.LOG.at["log"],
            layout.COLLECTIVES,
            lambda state: state // 8,
        )
        if row["state"] % 8 >= 2 and row["group"] in groups
    ]
    calls.sort(key=lambda call: call.number)
    return CollectiveLog(tuple(groups.values()), tuple(calls), head["dropped"])


def read_totals(size: int, read: Read) -> list[CollectiveTotal]:
    """Return the totals of a file of `size` bytes; none when it has none."""
    if _head(size, read) is None:
        return []
    groups = _groups(read)
    rows = layout.TOTAL.rows(
        read(_AT + layout.LOG.at["totals"], layout.TOTALS * layout.TOTAL.size)
    )
    return [
        filled(
            CollectiveTotal,
            row,
            group=groups[row["group"]],
            run=Histogram.of(row["run_ns"]),
        )
        for _, row in rows
        if row["group"] in groups
    ]


def read_host_place(size: int, read: Read) -> HostPlace | None:
    """Return where the host is; None where that is not known."""
    if _head(size, read) is None:
        return None
    for _ in range(8):  # the sampler writes once a second
        for row in layout.PLACE.steady(read, _AT + layout.LOG.at["host"], 1):
            if row["changes"] % 2 == 0:
                return filled(HostPlace, row, in_loader=bool(row["in_loader"]))
    return None
