"""Reading the log of collectives: the mirror of csrc/distributed/core/collectives.h."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from npu_dispatch.observe.segment.layout import OFFSETS, text_of

__all__ = [
    "LOG_AT",
    "CollectiveGroup",
    "CollectiveLog",
    "LoggedCollective",
    "read_groups",
    "read_log",
    "read_world",
]

LOG_AT = OFFSETS["kExtensionAt"]
# version, entry_bytes, entries, group_bytes, groups_held, next, dropped, made
_HEAD = struct.Struct("<8Q")
# known, rank, size, name, description, token, ranks
_GROUP = struct.Struct("<3Q64s64s40s832s")
# state, group, seq, name, site, scheduled, started, ended, all here, timeout, root,
# reduce, stream, tensors, shapes
_ENTRY = struct.Struct("<3Q24s10Q40Q")
_STATES = ("free", "writing", "scheduled", "started", "completed", "failed")
_MESSAGE = 1 << 63
_RANKS_TEXT = 831
_MOST_RANKS = 1 << 16
_MOST_CALLS = 1024  # kCollectives
_MOST_GROUPS = (OFFSETS["CollectiveLog.log"] - OFFSETS["CollectiveLog.groups"]) // (
    _GROUP.size
)

# c10::ScalarType and c10d::ReduceOp, by number.
DTYPES = (
    *("Byte", "Char", "Short", "Int", "Long", "Half", "Float", "Double"),
    *("ComplexHalf", "ComplexFloat", "ComplexDouble", "Bool"),
    *("QInt8", "QUInt8", "QInt32", "BFloat16", "QUInt4x2", "QUInt2x4"),
    *("Bits1x8", "Bits2x4", "Bits4x2", "Bits8", "Bits16"),
    *("Float8_e5m2", "Float8_e4m3fn", "Float8_e5m2fnuz", "Float8_e4m3fnuz"),
    *("UInt16", "UInt32", "UInt64"),
)
REDUCTIONS = (
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


class CollectiveLog(NamedTuple):
    groups: tuple[CollectiveGroup, ...]
    calls: tuple[LoggedCollective, ...]  # oldest first
    dropped: int  # calls that found no entry free


def _ranks(text: str) -> tuple[int, ...]:
    """Return the ranks of "0-2,5"."""
    found: list[int] = []
    parts = text.split(",")
    if len(text) >= _RANKS_TEXT:
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
                sizes=tuple(words[at + 1 : at + 1 + n]),
                dtype=DTYPES[dtype] if dtype < len(DTYPES) else str(dtype),
                is_output=bool(word >> 16 & 1),
                peer=(word >> 32) - 1,
            )
        )
        at += 1 + n
    return tuple(found)


def read_groups(
    size: int, read: Callable[[int, int], bytes]
) -> dict[int, CollectiveGroup] | None:
    """Return the groups of a segment of `size` bytes by their place, or None.

    None says that it has no log of collectives, or one of another layout.
    """
    if size < LOG_AT + OFFSETS["CollectiveLog.size"]:
        return None
    version, entry, entries, group, groups, *_ = _HEAD.unpack(read(LOG_AT, _HEAD.size))
    found = version, entry, entries, group, groups
    if found != (
        *(OFFSETS["kCollectiveLogVersion"], _ENTRY.size, _MOST_CALLS),
        *(_GROUP.size, _MOST_GROUPS),
    ):
        return None
    known: dict[int, CollectiveGroup] = {}
    data = read(LOG_AT + OFFSETS["CollectiveLog.groups"], group * groups)
    for i, row in enumerate(_GROUP.iter_unpack(data)):
        is_known, rank, _, *texts = row
        if is_known:
            name, description, token, ranks = map(text_of, texts)
            known[i] = CollectiveGroup(name, description, token, rank, _ranks(ranks))
    return known


def read_world(size: int, read: Callable[[int, int], bytes]) -> tuple[int, int] | None:
    """Return the process's rank of the world and the world's size.

    None where it has joined none: its first group is the world.
    """
    if size < LOG_AT + OFFSETS["CollectiveLog.size"]:
        return None
    version, *_ = _HEAD.unpack(read(LOG_AT, _HEAD.size))
    if version != OFFSETS["kCollectiveLogVersion"]:
        return None
    at = LOG_AT + OFFSETS["CollectiveLog.groups"]
    known, rank, size, *_ = _GROUP.unpack(read(at, _GROUP.size))
    return (rank, size) if known else None


def read_log(
    size: int, read: Callable[[int, int], bytes], site: Callable[[int], str]
) -> CollectiveLog | None:
    """Return the log of a segment of `size` bytes, or None when it has none.

    `read(at, bytes)` gives its bytes, `site(number)` the line of a call site.
    """
    found = read_groups(size, read)
    if found is None:
        return None
    *_, dropped, _ = _HEAD.unpack(read(LOG_AT, _HEAD.size))
    at, entry = LOG_AT + OFFSETS["CollectiveLog.log"], _ENTRY.size
    data = read(at, entry * _MOST_CALLS)
    again = read(at, entry * _MOST_CALLS)
    calls = []
    for place, row in enumerate(_ENTRY.iter_unpack(data)):
        (later,) = struct.unpack_from("<Q", again, place * entry)
        number, state = divmod(row[0], 8)
        # If the call is the same before and after, all words are this call's.
        if state < 2 or later // 8 != number or row[1] not in found:
            continue
        calls.append(
            LoggedCollective(
                number=number,
                group=found[row[1]],
                seq=row[2] & ~_MESSAGE,
                is_message=bool(row[2] & _MESSAGE),
                name=text_of(row[3]),
                state=_STATES[min(state, len(_STATES) - 1)],
                at=site(row[4]),
                scheduled_ns=row[5],
                started_ns=row[6],
                ended_ns=row[7],
                all_here_ns=row[8],
                timeout_ms=row[9],
                root=row[10] - 1,
                reduction=REDUCTIONS[row[11] - 1]
                if 0 < row[11] <= len(REDUCTIONS)
                else "",
                device=row[12] >> 32,
                stream=row[12] & 0xFFFFFFFF,
                tensors=_shapes(row[14:]),
            )
        )
    calls.sort(key=lambda call: call.number)
    return CollectiveLog(tuple(found.values()), tuple(calls), dropped)
