"""Where the fields of a statistics segment are: the mirror of csrc/stats/layout.h.

A test compares the two.
"""

from __future__ import annotations

import struct

LAYOUT_VERSION = 13
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

MAGIC = b"NPUSTATS"
HEADER = struct.Struct("<8s8I4Q16s16s16s64s64s16s24s512s")
WORD = struct.Struct("<Q")
STREAM_HEAD = struct.Struct("<IiqQ")  # state, device, stream id, capacity
NAME = struct.Struct("<QQQ56s")  # key, tasks, ns, text
DEPTH_BUCKETS = 16
TIME_BUCKETS = 156
RUNNING = 1 << 63  # RunningTime::kRunning
SITE = struct.Struct("<IIQQQQ152s")  # known, reason, waits, wait_ns, tasks, ns, text
MAX_SITES = 8192
RECENT_TASKS = 128
# owner, since, reason, site, stream, until
OPEN_WAIT = struct.Struct("<6Q16x")
OPEN_WAITS = 64
THREAD_MASK = BEING_WRITTEN = (1 << 32) - 1  # of OpenWait::owner
RECENT_DROPPED, RECENT_FAILED = 1 << 32, 1 << 33  # of RecentTask::site
EXEMPLAR_OCTAVES = 41
STATE_MASK = (1 << 32) - 1  # of the first word of a StreamBlock
STREAM_ID_MASK = (1 << 32) - 1  # of StreamBlock::held_by

# Every offset that this file relies on, under the names of _C.segment_layout().
OFFSETS: dict[str, int] = {
    "SegmentHeader.size": 800,
    "DeviceBlock.size": 840,
    "StreamBlock.size": 16256,
    "NameEntry.size": 80,
    "SiteEntry.size": 192,
    "SiteEntry.text": 40,
    "SiteEntry.waits": 8,
    "SiteEntry.tasks": 24,
    "Exemplars.size": 984,
    "RecentTask.size": 16,
    "Segment.process": 832,
    "OpenWait.size": OPEN_WAIT.size,
    "OpenWait.owner": 0,
    "OpenWait.until": 40,
    "Segment.control": 2176,
    "Segment.waits": 2240,
    "Segment.devices": 6336,
    "Segment.streams": 60096,
    "Segment.names": 4221632,
    "Segment.sites": 4303552,
    "CollectiveEntry.size": 448,
    "CollectiveEntry.shapes": 128,
    "CollectiveGroup.size": 1024,
    "CollectiveGroup.name": 24,
    "CollectiveGroup.ranks": 192,
    "CollectiveLog.next": 40,
    "CollectiveLog.groups": 64,
    "CollectiveLog.log": 131136,
    "CollectiveLog.size": 952640,
    "CollectiveLog.totals": 589888,
    "CollectiveLog.host": 950336,
    "CollectiveTotals.size": 1408,
    "CollectiveTotals.run_ns": 88,
    "HostPlace.size": 256,
    "kCollectiveLogVersion": 3,
    "SegmentHeader.pid": 32,
    "SegmentHeader.process_start": 40,
    "SegmentHeader.pid_namespace": 64,
    "SegmentHeader.rank": 72,
    "SegmentHeader.pod": 184,
    "SegmentHeader.package": 248,
    "SegmentHeader.command": 288,
    "ProcessBlock.sanitizer_enabled": 0,
    "ProcessBlock.trace_dropped": 8,
    "ProcessBlock.async_waiters": 16,
    "ProcessBlock.async_wakeup_ns": 24,
    "ProcessBlock.sites": 1288,
    "ProcessBlock.unpublished_streams": 1296,
    "ProcessBlock.optimizer_steps": 1304,
    "ControlBlock.launch_blocking": 0,
    "DeviceBlock.waits": 0,
    "DeviceBlock.wait_ns": 96,
    "DeviceBlock.waiting": 192,
    "DeviceBlock.waiting_from": 288,
    "DeviceBlock.memory_total": 384,
    "DeviceBlock.allocated": 392,
    "DeviceBlock.allocated_peak": 400,
    "DeviceBlock.reserved": 408,
    "DeviceBlock.allocations": 416,
    "DeviceBlock.alloc_retries": 424,
    "DeviceBlock.ooms": 432,
    "DeviceBlock.copy_bytes": 440,
    "DeviceBlock.sync_violations": 488,
    "DeviceBlock.sanitizer_reports": 680,
    "DeviceBlock.sanitizer_bytes": 744,
    "DeviceBlock.sanitizer_ns": 752,
    "DeviceBlock.graph_captures": 760,
    "DeviceBlock.graph_replays": 768,
    "DeviceBlock.graph_capture_failures": 776,
    "DeviceBlock.events_created": 816,
    "DeviceBlock.events_recorded": 824,
    "DeviceBlock.events_pending": 832,
    "StreamBlock.state": 0,
    "StreamBlock.device": 4,
    "StreamBlock.stream_id": 8,
    "StreamBlock.capacity": 16,
    "StreamBlock.thread": 24,
    "StreamBlock.tail": 64,
    "StreamBlock.retired": 128,
    "StreamBlock.failed": 136,
    "StreamBlock.dropped": 144,
    "StreamBlock.parks": 152,
    "StreamBlock.spins": 160,
    "StreamBlock.last_retired_ns": 168,
    "StreamBlock.starved_ns": 176,
    "StreamBlock.alive": 192,
    "StreamBlock.idle": 200,
    "StreamBlock.held": 208,
    "StreamBlock.held_by": 232,
    "StreamBlock.held_until": 240,
    "StreamBlock.woken_ns": 248,
    "StreamBlock.head_queued_ns": 256,
    "StreamBlock.errors": 264,
    "StreamBlock.capturing": 328,
    "StreamBlock.depth": 384,
    "StreamBlock.queued_ns": 2112,
    "StreamBlock.latency_ns": 3376,
    "StreamBlock.run_ns": 4640,
    "StreamBlock.queued_exemplars": 12224,
    "StreamBlock.latency_exemplars": 13208,
    "StreamBlock.recent": 14208,
    "StreamBlock.full_waits": 576,
    "StreamBlock.full_wait_ns": 584,
    "StreamBlock.full_waiting": 592,
    "StreamBlock.full_waiting_from": 600,
    "StreamBlock.bypassed": 608,
    "StreamBlock.deferred_bytes": 640,
    "StreamBlock.drains": 648,
    "StreamBlock.drain_ns": 744,
    "StreamBlock.launch_ns": 840,
    "NameEntry.key": 0,
    "NameEntry.text": 24,
    "kExtensionAt": 5898240,
    "kDepthBuckets": DEPTH_BUCKETS,
    "kTimeBuckets": TIME_BUCKETS,
    "kMaxSites": MAX_SITES,
    "kSamplePeriod": SAMPLE_PERIOD,
    "kWaitReasons": len(WAIT_REASONS),
    "kErrorCodes": len(ERROR_CODES),
    "kReportKinds": len(REPORT_KINDS),
    "kBypasses": len(BYPASSES),
    "kHolds": len(HOLDS),
    "kWorks": len(WORKS),
    "kCaptureFailures": len(CAPTURE_FAILURES),
    "kRecentTasks": RECENT_TASKS,
    "kMaxOpenWaits": OPEN_WAITS,
    "kExemplarOctaves": EXEMPLAR_OCTAVES,
}


def _room(name: str, following: str, size: int) -> int:
    return (OFFSETS[f"Segment.{following}"] - OFFSETS[f"Segment.{name}"]) // size


# How many of each a segment has room for. A header may say fewer.
_ROOM = {
    "devices": _room("devices", "streams", OFFSETS["DeviceBlock.size"]),
    "streams": _room("streams", "names", OFFSETS["StreamBlock.size"]),
    "names": _room("names", "sites", NAME.size),
}


def text_of(data: bytes) -> str:
    """Return the text in an array of char."""
    return data.partition(b"\0")[0].decode(errors="replace")


def beyond_room(**counts: int) -> str:
    """Return what a header claims that no process of ours writes, or "".

    A file may have any size without taking memory, and its readers would take it.
    """
    for what, count in counts.items():
        if count > _ROOM[what]:
            return f"expected up to {_ROOM[what]} {what}, found {count}"
    return ""


# The words of a stream that are read without any conversion.
STREAM_WORDS = (
    "thread",
    "failed",
    "dropped",
    "parks",
    "spins",
    "last_retired_ns",
    "starved_ns",
    "held_until",
    "woken_ns",
    "head_queued_ns",
    "full_waits",
    "deferred_bytes",
)
DEVICE_WORDS = (
    "memory_total",
    "allocated",
    "allocated_peak",
    "reserved",
    "allocations",
    "alloc_retries",
    "ooms",
    "sanitizer_bytes",
    "sanitizer_ns",
    "graph_captures",
    "graph_replays",
    "events_created",
    "events_recorded",
    "events_pending",
)


def running_ns(word: int, now: int) -> tuple[int, bool]:
    """Return a RunningTime's sum, and whether it runs."""
    if word & RUNNING:
        return max(0, now - (word & ~RUNNING)), True
    return word, False
