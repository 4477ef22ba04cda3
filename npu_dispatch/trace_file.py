"""Read the trace records that a process keeps, and ask it to keep them.

csrc/taskqueue/trace.h defines the layout; this file mirrors it. Imports neither
torch nor the extension, and needs no help of the traced process.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "KINDS",
    "MARK_BEGIN",
    "MARK_END",
    "MARK_POINT",
    "OUTCOMES",
    "Ring",
    "TraceError",
    "TraceFile",
    "trace_path",
]

KINDS = ("kernel", "wait", "record", "program")
# Kinds of marks: a range's ends, and a moment by itself.
MARK_BEGIN, MARK_END, MARK_POINT = 16, 17, 18
OUTCOMES = ("done", "failed", "dropped")

_VERSION = 2
_MAGIC = b"NPUTRACE"
_HEADER = struct.Struct("<8sIIQQQQdIIQQIIIIQQ")
_WANTED_AT = 88
_RING = struct.Struct("<IiqQ")  # used, device, stream, written
_TAKEN_AT = 24  # TraceRing::taken
_RECORDS_AT = 64
# Recalibrate the ticks over at least this long.
_BASELINE_NS = 10_000_000

RECORD = np.dtype(
    {
        "names": [
            "position",
            "submitted",
            "started",
            "ended",
            "other_number",
            "other_stream",
            "other_device",
            "name",
            "depth",
            "kind",
            "outcome",
        ],
        "formats": ["<u8"] * 5 + ["<i8", "<i4", "<u4", "<u4", "u1", "u1"],
        "offsets": [0, 8, 16, 24, 32, 40, 48, 52, 56, 60, 61],
        "itemsize": 64,
    }
)


def trace_path(pid: int) -> Path:
    """Return where a process of this user has its trace file."""
    return Path(f"/dev/shm/npu_dispatch-trace-{os.getuid()}/{pid}")


class TraceError(RuntimeError):
    """There is no trace file of this version to read."""


@dataclass(slots=True)
class Ring:
    """One stream's records read so far, or the marks'. Times are ticks."""

    device: int  # -1: of marks
    stream: int
    chunks: list[NDArray[Any]]
    read: int = 0  # records seen, or known to be lost
    lost: int = 0


class TraceFile:
    """A process's trace file; use as a context manager."""

    def __init__(self, path: Path) -> None:
        try:
            file = path.open("r+b")
        except OSError as error:
            raise TraceError(
                f"no process that uses npu, or not one of this user: {path}: "
                f"{error.strerror}"
            ) from error
        with file:
            if os.fstat(file.fileno()).st_size < _HEADER.size:
                raise TraceError(f"{path}: too short for a trace file")
            self._map = mmap.mmap(file.fileno(), 0)
        magic, version, self.pid = self._header()[:3]
        if magic != _MAGIC or version != _VERSION:
            self._map.close()
            raise TraceError(f"{path}: not a trace file of version {_VERSION}")
        (self._n_rings, self._n_records, self._rings_at, self._ring_bytes) = (
            self._header()[8:12]
        )
        self._names_at = self._header()[12]
        self.rings: dict[int, Ring] = {}
        # Whether the process counts what is written over before it is read.
        self.following = False

    def _header(self) -> tuple[Any, ...]:
        return _HEADER.unpack_from(self._map)

    @property
    def wanted(self) -> bool:
        """Whether the process keeps records; assign to ask it to."""
        return bool(self._header()[14])

    @wanted.setter
    def wanted(self, value: bool) -> None:
        struct.pack_into("<I", self._map, _WANTED_AT, value)

    def read(self) -> None:
        """Add what was written since the last call to `rings`."""
        for index in range(self._n_rings):
            at = self._rings_at + index * self._ring_bytes
            used, device, stream, _ = _RING.unpack_from(self._map, at)
            if not used:
                break
            ring = self.rings.setdefault(index, Ring(device, stream, []))
            self._read(ring, at)

    def unfollow(self) -> None:
        """Let the process write over records again without counting them."""
        self.following = False
        for index in self.rings:
            at = self._rings_at + index * self._ring_bytes
            struct.pack_into("<Q", self._map, at + _TAKEN_AT, 0)

    def skip(self) -> None:
        """Forget what was written before now."""
        self.read()
        for ring in self.rings.values():
            ring.chunks.clear()
            ring.lost = 0

    def _read(self, ring: Ring, at: int) -> None:
        n = self._n_records
        written = _RING.unpack_from(self._map, at)[3]
        first = max(ring.read, written - n)
        slots = np.frombuffer(self._map, RECORD, n, at + _RECORDS_AT)
        copy = slots[np.arange(first, written) % n]
        # What the launcher wrote over while we copied, and may be writing now.
        oldest = _RING.unpack_from(self._map, at)[3] - n + 1
        torn = min(max(0, oldest - first), written - first)
        ring.lost += first + torn - ring.read
        ring.read = written
        if self.following:
            struct.pack_into("<Q", self._map, at + _TAKEN_AT, written)
        if len(copy) > torn:
            ring.chunks.append(copy[torn:])
        del slots

    def names(self) -> dict[int, str]:
        """Return the names by the number that records have for them."""
        used = self._header()[15]
        found, at = {}, 0
        while at < used:
            (length,) = struct.unpack_from("<H", self._map, self._names_at + at)
            start = self._names_at + at + 2
            found[at] = self._map[start : start + length].decode(errors="replace")
            at += 2 + length
        return found

    def to_ns(self, ticks: NDArray[Any]) -> NDArray[np.int64]:
        """Convert ticks to CLOCK_MONOTONIC nanoseconds."""
        fields = self._header()
        zero_ticks, zero_ns, rate = fields[4], fields[5], fields[7]
        later_ticks, later_ns = fields[16:18]
        if later_ns - zero_ns > _BASELINE_NS:
            rate = (later_ns - zero_ns) / (later_ticks - zero_ticks)
        past = (ticks.astype(np.int64) - zero_ticks).astype(np.float64)
        ns: NDArray[np.int64] = np.rint(past * rate).astype(np.int64) + zero_ns
        return ns

    def all_rings(self) -> Iterator[tuple[Ring, NDArray[Any]]]:
        """Yield each stream and its records, in the order they ran."""
        for ring in self.rings.values():
            yield ring, np.concatenate(ring.chunks or [np.empty(0, RECORD)])

    def close(self) -> None:
        self._map.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
