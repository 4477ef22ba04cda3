"""Read the trace records that a process keeps, and ask it to keep them.

csrc/observe/trace.h defines the layout, and this file mirrors it. It imports
neither torch nor the extension, and needs no help from the traced process.
"""

from __future__ import annotations

import fcntl
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from npu_dispatch.observe.segment.folders import TRACES, own_file
from npu_dispatch.observe.segment.layout import WORD, Struct
from npu_dispatch.observe.segment.system import lives
from npu_dispatch.observe.segment.untrusted_file import Closed, UntrustedFile

KINDS = ("kernel", "wait", "record", "program")
OUTCOMES = ("done", "failed", "dropped")

_VERSION = 5
_MAGIC = b"NPUTRACE"
_HEADER = Struct(
    "magic:8s version:I pid:I process_start ticks monotonic_ns realtime_ns "
    "ns_per_tick:d rings:I records:I rings_at ring_bytes names_at:I name_bytes:I "
    "wanted:I names_used:I later_ticks later_ns pid_namespace"
)
_RING = Struct("used:I device:i stream:q written taken |")  # the records follow
_NAME_BYTES = 1 << 18  # kTraceNameBytes
_MOST_RINGS, _MOST_RECORDS = 64, 1 << 16  # kTraceRings, kTraceRecords
# Recalibrate the ticks over at least this long.
_BASELINE_NS = 10_000_000

_RECORD = Struct(
    "position submitted started ended other_number other_stream:q name:I depth:I "
    "line:I other_device:h kind:B outcome:B"
)
RECORD = np.dtype([(name, f"<{form}") for name, form in _RECORD.formats.items()])


def trace_path(pid: int) -> Path:
    """Return where a process of this user has its trace file."""
    return own_file(TRACES, pid)


class TraceError(RuntimeError):
    """There is no trace file of this version to read."""


class NoProcessError(TraceError):
    """The process has ended, or never used the device, or is another user's."""


@dataclass(slots=True)
class Ring:
    """One stream's records read so far, or the marks'. Times are ticks."""

    device: int  # -1: of marks
    stream: int
    chunks: list[NDArray[Any]]
    read: int = 0  # records seen, or known to be lost
    lost: int = 0


class TraceFile(Closed):
    """A process's trace file; use as a context manager."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = UntrustedFile(path, writable=True, raises=TraceError)
        except FileNotFoundError as error:
            raise NoProcessError(
                f"no process that uses npu, or not one of this user: {path}: "
                f"{error.strerror}"
            ) from error
        except OSError as error:
            raise TraceError(f"cannot read the trace file: {error}") from error
        if self._file.size < _HEADER.size:
            self._file.close()
            raise TraceError(f"{path}: too short for a trace file")
        head = self._header()
        self.pid, self._n_records = head["pid"], head["records"]
        self._ring_places = range(
            head["rings_at"],
            head["rings_at"] + head["rings"] * head["ring_bytes"],
            max(1, head["ring_bytes"]),
        )
        if (
            (head["magic"], head["version"]) != (_MAGIC, _VERSION)
            or not 0 < self._n_records <= _MOST_RECORDS
            or head["rings"] > _MOST_RINGS
            or head["ring_bytes"] < _RING.size + self._n_records * RECORD.itemsize
            or self._ring_places.stop > self._file.size
        ):
            self._file.close()
            raise TraceError(f"{path}: not a trace file of version {_VERSION}")
        self.rings: dict[int, Ring] = {}
        # Whether the process counts records that it overwrites before they are read.
        self.following = False

    @classmethod
    def of_process(cls, pid: int) -> Self:
        """Return the file of a living process of this user.

        A process that was killed leaves its file, and its number is used again; the
        file of such an earlier process is never returned.
        """
        path = trace_path(pid)
        file = cls(path)
        head = file._header()
        if lives(pid, head["process_start"], head["pid_namespace"]):
            return file
        file._file.close()
        raise NoProcessError(
            f"process {pid} has no trace file: {path} is that of an earlier process "
            "of this number, or of another container's"
        )

    def _header(self) -> dict[str, Any]:
        return _HEADER.read(self._file.read(0, _HEADER.size))

    @property
    def wanted(self) -> bool:
        """Whether the process keeps records; assign True to make it do so."""
        return bool(self._header()["wanted"])

    @wanted.setter
    def wanted(self, value: bool) -> None:
        self._file.write(_HEADER.at["wanted"], struct.pack("<I", value))

    def read(self) -> None:
        """Add what was written since the last call to `rings`."""
        for index, at in enumerate(self._ring_places):
            head = self._ring(at)
            if not head["used"]:
                break
            if index not in self.rings:
                self.rings[index] = Ring(head["device"], head["stream"], [])
            self._read(self.rings[index], at, head["written"])

    def _ring(self, at: int) -> dict[str, Any]:
        return _RING.read(self._file.read(at, _RING.size))

    @property
    def followed(self) -> bool:
        """Whether the process keeps records because somebody follows it now."""
        if not self._file.lock(fcntl.LOCK_EX | fcntl.LOCK_NB):
            return True
        self._file.lock(fcntl.LOCK_UN)
        return False

    def follow(self) -> None:
        """Have the process keep records from now on, until all who follow have left.

        The first one also has it count what it overwrites before that one has read it.
        """
        self.skip()
        self.following = not self.followed
        self._file.lock(fcntl.LOCK_SH)
        self.wanted = True

    def leave(self) -> None:
        """End what follow() began."""
        if self.following:
            self.following = False
            for index in self.rings:
                self._take(self._ring_places[index], 0)
        # Given back first: two that leave at once would each find the other's.
        self._file.lock(fcntl.LOCK_UN)
        if self._file.lock(fcntl.LOCK_EX | fcntl.LOCK_NB):
            self.wanted = False
            self._file.lock(fcntl.LOCK_UN)

    def skip(self) -> None:
        """Forget what was written before now."""
        self.read()
        for ring in self.rings.values():
            ring.chunks.clear()
            ring.lost = 0

    def _read(self, ring: Ring, at: int, written: int) -> None:
        n = self._n_records
        first = max(ring.read, written - n)
        copy = np.concatenate([np.empty(0, RECORD), *self._records(at, first, written)])
        # These the launcher has overwritten during the copy, or may be writing now.
        oldest = self._ring(at)["written"] - n + 1
        torn = min(max(0, oldest - first), written - first)
        ring.lost += first + torn - ring.read
        ring.read = written
        if self.following:
            self._take(at, written)
        if len(copy) > torn:
            ring.chunks.append(copy[torn:])

    def _take(self, at: int, records: int) -> None:
        """Tell the process up to which record a ring has been read; 0: nobody reads."""
        self._file.write(at + _RING.at["taken"], WORD.pack(records))

    def _records(self, at: int, first: int, end: int) -> Iterator[NDArray[Any]]:
        """Yield the records with these numbers, in one piece or in two."""
        while first < end:
            slot = first % self._n_records
            count = min(end - first, self._n_records - slot)
            start = at + _RING.size + slot * RECORD.itemsize
            data = self._file.read(start, count * RECORD.itemsize)
            yield np.frombuffer(data, RECORD)
            first += count

    def names(self) -> dict[int, str]:
        """Return the names by the number that records have for them."""
        head = self._header()
        if head["names_used"] > _NAME_BYTES:
            raise TraceError(f"{self._file.path}: its names cannot be read")
        texts = self._file.read(head["names_at"], head["names_used"])
        found, at = {}, 0
        while at + 2 <= len(texts):
            (length,) = struct.unpack_from("<H", texts, at)
            found[at] = texts[at + 2 : at + 2 + length].decode(errors="replace")
            at += 2 + length
        return found

    def to_ns(self, ticks: NDArray[Any]) -> NDArray[np.int64]:
        """Convert ticks to CLOCK_MONOTONIC nanoseconds."""
        head = self._header()
        zero_ticks, zero_ns = head["ticks"], head["monotonic_ns"]
        rate = head["ns_per_tick"]
        if max(zero_ticks, zero_ns) >= 1 << 63 or not 0 < rate < 1e9:
            raise TraceError(f"{self._file.path}: its clocks cannot be read")
        later_ticks, later_ns = head["later_ticks"], head["later_ns"]
        if later_ns - zero_ns > _BASELINE_NS and later_ticks > zero_ticks:
            rate = (later_ns - zero_ns) / (later_ticks - zero_ticks)
        past = (ticks.astype(np.int64) - zero_ticks).astype(np.float64)
        ns: NDArray[np.int64] = np.rint(past * rate).astype(np.int64) + zero_ns
        return ns

    def all_rings(self) -> Iterator[tuple[Ring, NDArray[Any]]]:
        """Yield each stream and its records, in the order they ran."""
        for ring in self.rings.values():
            yield ring, np.concatenate(ring.chunks or [np.empty(0, RECORD)])

    def close(self) -> None:
        self._file.close()
