"""Where the fields of a segment are: the mirror of csrc/stats/layout.h.

It mirrors csrc/distributed/core/collectives.h, too. Each struct stands here once, and
a test compares all offsets, sizes and counts that follow with those of the engine.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

LAYOUT_VERSION = 16
COLLECTIVES_VERSION = 3
MAGIC = b"NPUSTATS"
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
    "h2d",
    "graph",
    "dealloc",
    "raw_handle",
)
# The reasons of OpenWait::reason, which is a WaitReason or kFullQueue.
OPEN_WAIT_REASONS = (*WAIT_REASONS, "full_queue")
# Bypass, Hold, Work and CaptureFailure.
BYPASSES = ("sync_launch_stream", "launch_blocking", "capture", "nested")
HOLDS = ("event", "barrier", "copy")
WORKS = ("kernel", "event", "h2d", "d2h", "d2d", "host")
CAPTURE_FAILURES = ("sync", "thread", "join", "rule", "abandoned")
# CopyKind.
COPY_KINDS = ("h2d", "d2h", "d2d")
# DeviceBlock::sanitizer_reports.
REPORT_KINDS = (
    "race_ww",
    "race_rw",
    "alloc_reuse",
    "missing_record_stream",
    "host_read",
    "use_after_free",
    "unordered_raw_launch",
    "overwritten_result",
)
# npu_code of csrc/driver/driver.h.
ERROR_CODES = (
    "ok",
    "error",
    "index_error",
    "value_error",
    "type_error",
    "not_implemented",
    "out_of_memory",
    "linalg_error",
)
# The time histograms count one task in so many, and those of depths one in four
# times as many.
SAMPLE_PERIOD = 16
STREAM_STATES = ("unused", "running", "failed")
# A trace's marks, in csrc/observe/trace.h: a range's ends, and a moment by itself.
MARK_BEGIN, MARK_END, MARK_POINT = 16, 17, 18

DEVICES, STREAMS, NAMES, SITES, OPEN_WAITS = 64, 256, 1024, 8192, 64
DEPTH_BUCKETS, TIME_BUCKETS = 16, 156
RECENT_TASKS, EXEMPLAR_OCTAVES = 128, 41
COLLECTIVES, GROUPS, TOTALS, SHAPE_WORDS = 1024, 128, 256, 40
RUNNING = 1 << 63  # RunningTime::kRunning
THREAD_MASK = BEING_WRITTEN = (1 << 32) - 1  # of OpenWait::owner
RECENT_DROPPED, RECENT_FAILED = 1 << 32, 1 << 33  # of RecentTask::site
RECENT_TASK_SHIFT = 34
STREAM_ID_MASK = (1 << 32) - 1  # of StreamBlock::held_by
_LINE = 64  # kCacheLine


def text_of(data: bytes) -> str:
    """Return the text in an array of char."""
    return data.partition(b"\0")[0].decode(errors="replace")


class Struct:
    """A struct of the engine: `size` and the fields' offsets `at` in bytes, `formats`.

    `fields` has them in their order. One that is only named is a word of 64 bits. A
    format of the struct module may follow, as in `pid:I`; `:N` means N words, `:Nt` a
    text in N bytes, and `:Ns` bytes as they are. `|` stands where a cache line begins.
    """

    def __init__(self, fields: str) -> None:
        self.at: dict[str, int] = {}
        self.formats: dict[str, str] = {}
        self._places: dict[str, int | slice] = {}
        self._texts: list[str] = []
        layout, count = "<", 0
        for field in fields.split():
            end = struct.calcsize(layout)
            if field == "|":
                layout += f"{-end % _LINE}x"
                continue
            name, _, kind = field.partition(":")
            if kind.endswith("t"):
                self._texts.append(name)
            several = int(kind) if kind.isdecimal() else 0
            form = kind.replace("t", "s") if kind and not several else f"{kind}Q"
            self.at[name], self.formats[name] = end, form
            self._places[name] = slice(count, count + several) if several else count
            count += several or 1
            layout += form
        aligned = _LINE if "|" in fields else 8
        layout += f"{-struct.calcsize(layout) % aligned}x"
        self.struct = struct.Struct(layout)
        self.size = self.struct.size

    def room(self, name: str) -> int:
        """Return how many bytes of text a field holds; a 0 follows them."""
        return struct.calcsize(self.formats[name]) - 1

    def read(self, data: bytes, at: int = 0) -> dict[str, Any]:
        """Return the fields by name: a number, a tuple of words, a text or bytes."""
        values = self.struct.unpack_from(data, at)
        found: dict[str, Any] = {
            name: values[place] for name, place in self._places.items()
        }
        for name in self._texts:
            found[name] = text_of(found[name])
        return found

    def rows(self, data: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the number and the fields of each struct of an array that is in use.

        The free ones begin with a word of 0.
        """
        for number, at in enumerate(range(0, len(data), self.size)):
            if WORD.unpack_from(data, at)[0]:
                yield number, self.read(data, at)

    def steady(
        self,
        read: Callable[[int, int], bytes],
        at: int,
        count: int,
        guard: Callable[[int], int] = int,
    ) -> Iterator[dict[str, Any]]:
        """Yield those of an array whose first word was the same before and after.

        All words of such a struct belong together: write_guarded() of
        csrc/stats/layout.h. `guard` gives the part of the first word that tells.
        `read(at, bytes)` gives bytes.
        """
        data, again = (read(at, count * self.size) for _ in range(2))
        for number, row in self.rows(data):
            first, later = (
                WORD.unpack_from(d, number * self.size)[0] for d in (data, again)
            )
            if guard(first) == guard(later):
                yield row


WORD = struct.Struct("<Q")
# All offsets and sizes, under the names of _C.segment_layout().
OFFSETS: dict[str, int] = {}


def _mirror(name: str, fields: str) -> Struct:
    one = Struct(fields)
    places = [*one.at.items(), ("size", one.size)]
    OFFSETS.update({f"{name}.{field}": at for field, at in places})
    return one


_WAITS, _HISTOGRAM = len(WAIT_REASONS), 2 + TIME_BUCKETS  # count, sum, buckets
HEADER = _mirror(
    "SegmentHeader",
    "magic:8s version:I header_bytes:I device_block_bytes:I device_blocks:I "
    "stream_block_bytes:I stream_blocks:I pid:I names:I "
    "process_start monotonic_ns realtime_ns pid_namespace "
    "rank:16t local_rank:16t world_size:16t job_id:64t pod:64t package:16t torch:24t "
    "command:512s stack_start",
)
PROCESS = _mirror(
    "ProcessBlock",
    f"sanitizer_enabled trace_dropped async_waiters async_wakeup_ns:{_HISTOGRAM} "
    "sites unpublished_streams optimizer_steps",
)
CONTROL = _mirror("ControlBlock", "| launch_blocking")
OPEN_WAIT = _mirror("OpenWait", "| owner since reason site stream until")
DEVICE = _mirror(
    "DeviceBlock",
    f"waits:{_WAITS} wait_ns:{_WAITS} waiting:{_WAITS} waiting_from:{_WAITS} "
    "memory_total allocated allocated_peak reserved allocations alloc_retries ooms "
    f"copy_bytes:{2 * len(COPY_KINDS)} sync_violations:{2 * _WAITS} "
    f"sanitizer_reports:{len(REPORT_KINDS)} sanitizer_bytes sanitizer_ns "
    "graph_captures graph_replays "
    f"graph_capture_failures:{len(CAPTURE_FAILURES)} "
    "events_created events_recorded events_pending",
)
EXEMPLAR = Struct("task value at")
RECENT = _mirror("RecentTask", "name site")
FAILURE = _mirror("FailureNote", "guard site text:176t")
_EXEMPLARS = EXEMPLAR_OCTAVES * EXEMPLAR.size
STREAM = _mirror(
    "StreamBlock",
    "state:I device:i stream_id:q capacity thread | tail "
    "| retired failed dropped parks spins last_retired_ns starved_ns "
    f"| alive idle held:{len(HOLDS)} held_by held_until woken_ns head_queued_ns "
    f"errors:{len(ERROR_CODES)} capturing | depth:{2 + DEPTH_BUCKETS} "
    "| full_waits full_wait_ns full_waiting full_waiting_from "
    f"bypassed:{len(BYPASSES)} deferred_bytes drains:{_WAITS} drain_ns:{_WAITS} "
    f"call_ns:{_HISTOGRAM} launch_ns:{_HISTOGRAM} "
    f"| queued_ns:{_HISTOGRAM} latency_ns:{_HISTOGRAM} "
    f"run_ns:{len(WORKS) * _HISTOGRAM} "
    f"queued_exemplars:{_EXEMPLARS}s latency_exemplars:{_EXEMPLARS}s "
    f"| recent:{RECENT_TASKS * RECENT.size}s failure:{FAILURE.size}s",
)
NAME = _mirror("NameEntry", "key tasks ns text:56t")
SITE = _mirror("SiteEntry", "known:I reason:I waits wait_ns tasks ns text:152t")
SEGMENT = _mirror(
    "Segment",
    f"header:{HEADER.size}s | process:{PROCESS.size}s | control:{CONTROL.size}s "
    f"| waits:{OPEN_WAITS * OPEN_WAIT.size}s | devices:{DEVICES * DEVICE.size}s "
    f"| streams:{STREAMS * STREAM.size}s | names:{NAMES * NAME.size}s "
    f"| sites:{SITES * SITE.size}s",
)

# Of csrc/distributed/core/collectives.h.
CALL = _mirror(
    "CollectiveEntry",
    "| state group seq name:24t site scheduled_ns started_ns ended_ns all_here_ns "
    f"timeout_ms root reduce stream tensors shapes:{SHAPE_WORDS}",
)
GROUP = _mirror(
    "CollectiveGroup", "known rank size name:64t description:64t token:40t ranks:832t"
)
TOTAL = _mirror(
    "CollectiveTotals",
    "| known group name:24t failed bytes queued_ns waited_ns exposed_ns host_wait_ns "
    f"run_ns:{_HISTOGRAM}",
)
PLACE = _mirror(
    "HostPlace", "| changes seen_ns since_ns ooms oom_ns in_loader line:152t"
)
_LOG_HEAD = "version entry_bytes entries group_bytes groups_held next dropped made"
LOG_HEAD = Struct(_LOG_HEAD)
LOG = _mirror(
    "CollectiveLog",
    f"{_LOG_HEAD} | groups:{GROUPS * GROUP.size}s | log:{COLLECTIVES * CALL.size}s "
    f"| totals:{TOTALS * TOTAL.size}s | host:{PLACE.size}s | in_call:{STREAMS}",
)

# Where the log of collectives is in a file.
EXTENSION_AT = -(-SEGMENT.size // 0x10000) * 0x10000


def beyond_room(header: dict[str, Any]) -> str:
    """Return what a header claims that no process of ours writes, or "".

    A file may have any size without taking memory, and its readers would take it.
    """
    room = {"device_blocks": DEVICES, "stream_blocks": STREAMS, "names": NAMES}
    for field, most in room.items():
        if header[field] > most:
            what = field.replace("_block", "")
            return f"expected up to {most} {what}, found {header[field]}"
    return ""


def running_ns(word: int, now: int) -> tuple[int, bool]:
    """Return a RunningTime's sum, and whether it runs."""
    if word & RUNNING:
        return max(0, now - (word & ~RUNNING)), True
    return word, False
