"""Read the counters that a process keeps in its statistics segment.

The engine is the only writer, and needs no help to be read: this also works on
a process that hangs. csrc/stats/layout.h defines the layout; this file mirrors
it. Imports neither torch nor the extension.
"""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Self

__all__ = [
    "LAYOUT_VERSION",
    "OFFSETS",
    "WAIT_REASONS",
    "DeviceStats",
    "Histogram",
    "SegmentInfo",
    "StatsError",
    "StatsReader",
    "StreamStats",
    "segment_file",
]

LAYOUT_VERSION = 1
# In the order of csrc/stats/layout.h, WaitReason.
WAIT_REASONS = (
    "item",
    "copy",
    "stream_sync",
    "event_sync",
    "device_sync",
    "operator",
    "allocator",
    "exit",
)
_STREAM_STATES = ("unused", "running", "failed")

_MAGIC = b"NPUSTATS"
_HEADER = struct.Struct("<8s8I3Q")
_WORD = struct.Struct("<Q")
_STREAM_HEAD = struct.Struct("<IiqQ")  # state, device, stream id, capacity
_DEPTH_BUCKETS = 16
_LATENCY_BUCKETS = 48
_DEVICE_TAIL = ("memory_total", "allocated", "allocated_peak", "reserved")

# Every offset that this file relies on, under the names of _C.segment_layout().
OFFSETS: dict[str, int] = {
    "SegmentHeader.size": 64,
    "DeviceBlock.size": 160,
    "StreamBlock.size": 1280,
    "Segment.devices": 64,
    "Segment.streams": 64 + 64 * 160,
    "DeviceBlock.waits": 0,
    "DeviceBlock.wait_ns": 64,
    "DeviceBlock.memory_total": 128,
    "DeviceBlock.allocated": 136,
    "DeviceBlock.allocated_peak": 144,
    "DeviceBlock.reserved": 152,
    "StreamBlock.state": 0,
    "StreamBlock.device": 4,
    "StreamBlock.stream_id": 8,
    "StreamBlock.capacity": 16,
    "StreamBlock.tail": 64,
    "StreamBlock.head": 128,
    "StreamBlock.retired": 192,
    "StreamBlock.failed": 200,
    "StreamBlock.dropped": 208,
    "StreamBlock.parks": 216,
    "StreamBlock.last_retired_ns": 224,
    "StreamBlock.depth": 256,
    "StreamBlock.queued_ns": 400,
    "StreamBlock.latency_ns": 800,
    "StreamBlock.full_waits": 1216,
    "StreamBlock.full_wait_ns": 1224,
    "StreamBlock.inline_tasks": 1232,
    "kDepthBuckets": _DEPTH_BUCKETS,
    "kLatencyBuckets": _LATENCY_BUCKETS,
    "kSamplePeriod": 16,
    "kWaitReasons": len(WAIT_REASONS),
}


def segment_file(pid: int | None = None) -> Path:
    """Return where a process of this user, by default this one, has its segment."""
    pid = os.getpid() if pid is None else pid
    return Path(f"/dev/shm/npu_dispatch-{os.getuid()}/{pid}")


class StatsError(RuntimeError):
    """The file is not a statistics segment this version can read."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts by power of two: bucket b holds values of b bits, bucket 0 zeros."""

    count: int
    sum: int
    buckets: tuple[int, ...]

    @property
    def mean(self) -> float:
        return self.sum / self.count if self.count else 0.0

    def percentile(self, q: float) -> float:
        """Return the value below which a share `q` (0 to 1) lies; 0 when empty.

        Exact to the bucket; inside one the values are taken as evenly spread.
        """
        total = sum(self.buckets)  # `count` may be a moment older
        wanted = q * total
        seen = 0
        for bits, n in enumerate(self.buckets):
            if n and seen + n >= wanted:
                low = 1 << (bits - 1) if bits else 0
                width = low  # [low, 2 * low)
                return low + width * max(0.0, wanted - seen) / n
            seen += n
        return 0.0

    def __add__(self, other: Histogram) -> Histogram:
        buckets = zip(self.buckets, other.buckets, strict=True)
        return Histogram(
            self.count + other.count,
            self.sum + other.sum,
            tuple(a + b for a, b in buckets),
        )


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    pid: int
    process_start: int
    monotonic_ns: int
    realtime_ns: int


@dataclass(frozen=True, slots=True)
class DeviceStats:
    device: int
    waits: dict[str, int]
    wait_ns: dict[str, int]
    memory_total: int
    allocated: int
    allocated_peak: int
    reserved: int


@dataclass(frozen=True, slots=True)
class StreamStats:
    device: int
    stream: int
    state: str
    capacity: int
    submitted: int
    retired: int
    failed: int
    dropped: int
    parks: int
    last_retired_ns: int
    full_waits: int
    full_wait_ns: int
    inline_tasks: int
    depth_histogram: Histogram
    queued_ns: Histogram
    latency_ns: Histogram

    @property
    def depth(self) -> int:
        """Tasks submitted and not yet retired.

        The two counters are read one after the other, so a busy stream can
        momentarily read as negative: that is reported as empty.
        """
        return max(0, self.submitted - self.retired)


class StatsReader:
    """A read-only view of one process's counters."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < _HEADER.size:
                raise StatsError(f"{path}: too short for a statistics segment")
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        try:
            self._read_header(path)
        except StatsError:
            self._map.close()
            raise

    def _read_header(self, path: Path) -> None:
        fields = _HEADER.unpack_from(self._map)
        magic, version, header, device, devices, stream, streams, pid, _ = fields[:9]
        if magic != _MAGIC:
            raise StatsError(f"{path}: not a statistics segment")
        if version != LAYOUT_VERSION:
            raise StatsError(
                f"{path}: expected layout {LAYOUT_VERSION}, found {version}"
            )
        sizes = (OFFSETS["DeviceBlock.size"], OFFSETS["StreamBlock.size"])
        end = OFFSETS["Segment.devices"] + devices * device + streams * stream
        if (device, stream) != sizes or len(self._map) < end:
            raise StatsError(f"{path}: its blocks do not have the sizes of layout 1")
        self.info = SegmentInfo(pid, *fields[9:])
        self._devices = range(devices)
        self._device_base, self._device_bytes = header, device
        aligned = -(-(header + devices * device) // 64) * 64
        self._streams = [aligned + i * stream for i in range(streams)]

    def _word(self, at: int) -> int:
        value: int = _WORD.unpack_from(self._map, at)[0]
        return value

    def _words(self, at: int, n: int) -> tuple[int, ...]:
        return struct.unpack_from(f"<{n}Q", self._map, at)

    def devices(self) -> list[DeviceStats]:
        """Return the devices that exist."""
        found = []
        n = len(WAIT_REASONS)
        for index in self._devices:
            at = self._device_base + index * self._device_bytes
            words = self._words(at, 2 * n + len(_DEVICE_TAIL))
            if not any(words):
                continue
            waits = dict(zip(WAIT_REASONS, words[:n], strict=True))
            wait_ns = dict(zip(WAIT_REASONS, words[n : 2 * n], strict=True))
            found.append(DeviceStats(index, waits, wait_ns, *words[2 * n :]))
        return found

    def depth(self) -> int:
        """Return the tasks now queued, over all streams. Cheap enough to poll."""
        total = 0
        for at in self._streams:
            if not self._map[at]:
                break
            tail = self._word(at + OFFSETS["StreamBlock.tail"])
            total += max(0, tail - self._word(at + OFFSETS["StreamBlock.retired"]))
        return total

    def streams(self) -> list[StreamStats]:
        """Return the streams made so far."""
        blocks = (self._stream(at) for at in self._streams if self._map[at])
        return list(blocks)

    def _stream(self, at: int) -> StreamStats:
        state, device, stream, capacity = _STREAM_HEAD.unpack_from(self._map, at)

        def word(name: str) -> int:
            return self._word(at + OFFSETS[f"StreamBlock.{name}"])

        def histogram(name: str, buckets: int) -> Histogram:
            words = self._words(at + OFFSETS[f"StreamBlock.{name}"], buckets + 2)
            return Histogram(words[0], words[1], words[2:])

        return StreamStats(
            device=device,
            stream=stream,
            state=_STREAM_STATES[state],
            capacity=capacity,
            # Before `submitted`, so that a busy stream reads as too deep, not empty.
            retired=word("retired"),
            submitted=word("tail"),
            failed=word("failed"),
            dropped=word("dropped"),
            parks=word("parks"),
            last_retired_ns=word("last_retired_ns"),
            full_waits=word("full_waits"),
            full_wait_ns=word("full_wait_ns"),
            inline_tasks=word("inline_tasks"),
            depth_histogram=histogram("depth", _DEPTH_BUCKETS),
            queued_ns=histogram("queued_ns", _LATENCY_BUCKETS),
            latency_ns=histogram("latency_ns", _LATENCY_BUCKETS),
        )

    def close(self) -> None:
        self._map.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
