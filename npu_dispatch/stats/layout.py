"""Where the fields of a statistics segment are: the mirror of csrc/stats/layout.h.

A test compares the two.
"""

from __future__ import annotations

import struct

LAYOUT_VERSION = 3
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
    "unknown",
)
# The time and depth histograms hold one task in so many.
SAMPLE_PERIOD = 16
STREAM_STATES = ("unused", "running", "failed")

MAGIC = b"NPUSTATS"
HEADER = struct.Struct("<8s8I4Q16s16s16s64s64s")
WORD = struct.Struct("<Q")
STREAM_HEAD = struct.Struct("<IiqQ")  # state, device, stream id, capacity
NAME = struct.Struct("<Q56s")
DEPTH_BUCKETS = 16
TIME_BUCKETS = 156
RUNNING = 1 << 63  # RunningTime::kRunning
SITE = struct.Struct("<I188s")
MAX_SITES = 4096
STREAM_ID_MASK = (1 << 32) - 1  # of StreamBlock::held_by

# Every offset that this file relies on, under the names of _C.segment_layout().
OFFSETS: dict[str, int] = {
    "SegmentHeader.size": 248,
    "DeviceBlock.size": 648,
    "StreamBlock.size": 6976,
    "NameEntry.size": 64,
    "SiteEntry.size": 192,
    "SiteEntry.text": 4,
    "Segment.process": 256,
    "Segment.devices": 1600,
    "Segment.streams": 43072,
    "Segment.names": 1828928,
    "Segment.sites": 1894464,
    "SegmentHeader.pid": 32,
    "SegmentHeader.process_start": 40,
    "SegmentHeader.pid_namespace": 64,
    "SegmentHeader.rank": 72,
    "SegmentHeader.pod": 184,
    "ProcessBlock.sanitizer_enabled": 0,
    "ProcessBlock.trace_dropped": 8,
    "ProcessBlock.async_waiters": 16,
    "ProcessBlock.async_wakeup_ns": 24,
    "DeviceBlock.waits": 0,
    "DeviceBlock.wait_ns": 64,
    "DeviceBlock.waiting": 128,
    "DeviceBlock.waiting_from": 192,
    "DeviceBlock.waiting_site": 584,
    "DeviceBlock.memory_total": 256,
    "DeviceBlock.allocated": 264,
    "DeviceBlock.allocated_peak": 272,
    "DeviceBlock.reserved": 280,
    "DeviceBlock.allocations": 288,
    "DeviceBlock.alloc_retries": 296,
    "DeviceBlock.ooms": 304,
    "DeviceBlock.copy_bytes": 312,
    "DeviceBlock.sync_violations": 360,
    "DeviceBlock.sanitizer_reports": 488,
    "DeviceBlock.sanitizer_bytes": 544,
    "DeviceBlock.sanitizer_ns": 552,
    "DeviceBlock.graph_captures": 560,
    "DeviceBlock.graph_replays": 568,
    "DeviceBlock.graph_capture_failures": 576,
    "StreamBlock.state": 0,
    "StreamBlock.device": 4,
    "StreamBlock.stream_id": 8,
    "StreamBlock.capacity": 16,
    "StreamBlock.thread": 24,
    "StreamBlock.tail": 64,
    "StreamBlock.head": 128,
    "StreamBlock.retired": 192,
    "StreamBlock.failed": 200,
    "StreamBlock.dropped": 208,
    "StreamBlock.parks": 216,
    "StreamBlock.spins": 224,
    "StreamBlock.last_retired_ns": 232,
    "StreamBlock.running": 240,
    "StreamBlock.running_site": 368,
    "StreamBlock.starved_ns": 248,
    "StreamBlock.alive": 256,
    "StreamBlock.idle": 264,
    "StreamBlock.held": 272,
    "StreamBlock.held_by": 280,
    "StreamBlock.held_until": 288,
    "StreamBlock.woken_ns": 296,
    "StreamBlock.errors": 304,
    "StreamBlock.depth": 384,
    "StreamBlock.queued_ns": 528,
    "StreamBlock.latency_ns": 1792,
    "StreamBlock.run_ns": 3056,
    "StreamBlock.wait_ns": 4320,
    "StreamBlock.full_waits": 5632,
    "StreamBlock.full_wait_ns": 5640,
    "StreamBlock.full_waiting": 5648,
    "StreamBlock.full_waiting_from": 5656,
    "StreamBlock.inline_tasks": 5664,
    "StreamBlock.deferred_bytes": 5672,
    "StreamBlock.launch_ns": 5680,
    "NameEntry.key": 0,
    "NameEntry.text": 8,
    "kDepthBuckets": DEPTH_BUCKETS,
    "kTimeBuckets": TIME_BUCKETS,
    "kMaxSites": MAX_SITES,
    "kSamplePeriod": SAMPLE_PERIOD,
    "kWaitReasons": len(WAIT_REASONS),
    "kErrorCodes": len(ERROR_CODES),
    "kReportKinds": len(REPORT_KINDS),
}
