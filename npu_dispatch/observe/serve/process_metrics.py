"""The metrics that the counters of a process become.

Metrics of time are histograms by device, and by stream where that is asked for. A
sampled metric counts one task in SAMPLE_PERIOD, and its name or its help says so.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache, reduce
from typing import NamedTuple, Protocol

from npu_dispatch.config import Config
from npu_dispatch.observe.judge.verdict import KINDS
from npu_dispatch.observe.segment import DeviceStats, Histogram, OpCost
from npu_dispatch.observe.segment.clock import unix_offset_ns
from npu_dispatch.observe.segment.collectives import CollectiveTotal
from npu_dispatch.observe.segment.listing import ProcessView, StreamView
from npu_dispatch.observe.segment.script_name import name_of
from npu_dispatch.observe.serve.collective_metrics import add_collectives
from npu_dispatch.observe.serve.families import (
    LAUNCH_BOUNDS,
    Exemplar,
    Families,
    Labels,
)

__all__ = ["More", "add_process"]

_S = 1e9
_STATES = ("idle", "running", "blocked_on_event", "error", "capturing")
QUIET_SECONDS = 300.0
# Waits that have another name in the metrics.
_REASONS = {"copy": "d2h"}


class More(Protocol):
    """What is to be had of a process beside its view."""

    def verdict(self, view: ProcessView) -> str:
        """Return the kind of the verdict."""

    def ops(self, view: ProcessView) -> Sequence[OpCost]:
        """Return what operators cost: the series to show."""

    def collectives(self, view: ProcessView) -> Sequence[CollectiveTotal]:
        """Return what collective calls have cost."""

    def exemplars(
        self, view: ProcessView, device: int, stream: int, name: str
    ) -> Sequence[Exemplar]:
        """Return tasks of the histogram "latency" or "queued"."""


class _Identity(NamedTuple):
    process: str
    rank: str
    local_rank: str
    job_id: str
    host: str
    pod: str


@cache
def _host(ranked: bool) -> str:
    """Return the node that the environment names, or where many are, this machine."""
    return Config.read().node_name or (socket.gethostname() if ranked else "")


# Labels repeat at every scrape, a quarter of which would go into making them.
@lru_cache(maxsize=1 << 12)
def _labels(who: _Identity, device: int | None, stream: int | None) -> Labels:
    given = (("device", device), ("stream", stream), *who._asdict().items())
    return Labels({name: str(v) for name, v in given if v not in (None, "")})


def add_process(
    out: Families, view: ProcessView, more: More, *, ranked: bool, per_stream: bool
) -> None:
    """Add every metric of a process.

    `ranked` adds the label `process`, without which the series of two processes
    could be the same. `per_stream` adds what is costly to have of every stream.
    """
    info = view.info
    who = _Identity(
        view.id if ranked else "",
        *(info.rank, info.local_rank, info.job_id, _host(ranked), info.pod),
    )
    base = _labels(who, None, None)
    _add_whole(out, view, more, base)
    used = [s for s in view.streams if s.stats.submitted]
    offset = unix_offset_ns() / _S
    for device in view.devices:
        streams = [s for s in view.streams if s.stats.device == device.device]
        labels = _labels(who, device.device, None)
        _add_device(out, device, streams, labels)
        _add_allocator(out, device, labels)
        mine = [s for s in streams if s.stats.submitted]
        if mine and not per_stream:
            _add_times(out, mine, labels, view, more)
    for stream in used:
        if _is_quiet(view, stream):
            continue
        labels = _labels(who, stream.stats.device, stream.stats.stream)
        _add_queue(out, stream, labels, offset)
        if per_stream:
            _add_thread(out, stream, labels)
            _add_times(out, [stream], labels, view, more)


def _is_quiet(view: ProcessView, stream: StreamView) -> bool:
    """Return whether a stream is left out until it is used again.

    The default stream never is, nor is one that has failed or has work.
    """
    s = stream.stats
    if s.stream == 0 or s.depth or s.state == "failed":
        return False
    last = stream.last_completion
    return last is not None and view.tick - last > QUIET_SECONDS


def _add_whole(out: Families, view: ProcessView, more: More, base: Labels) -> None:
    info, process = view.info, view.process
    out.info(
        "process",
        "Which process this is.",
        Labels(
            base,
            pid=str(info.pid),
            name=name_of(info),
            world_size=info.world_size,
            version=info.package,
            torch=info.torch,
        ),
    )
    kind = more.verdict(view)
    for each in KINDS:
        text = "1 for what holds the process up."
        out.gauge("process_verdict", text, base.also("kind", each), each == kind)
    out.gauge(
        "snapshot_timestamp_seconds",
        "When the counters were read from the living process.",
        base,
        view.tick + unix_offset_ns() / _S,
    )
    out.gauge(
        "sanitizer_enabled",
        "1 while the race sanitizer is on.",
        base,
        process.sanitizer_enabled,
    )
    out.gauge(
        "async_waiters", "Futures that await a device.", base, process.async_waiters
    )
    if process.unpublished_streams:
        text = "Streams without figures here: no memory or no room in the segment."
        out.gauge("unpublished_streams", text, base, process.unpublished_streams)
    if process.async_wakeup_ns.count:
        out.histogram(
            "async_wakeup_seconds",
            "From the device being done to the coroutine running.",
            base,
            process.async_wakeup_ns,
        )
    steps = process.optimizer_steps
    out.counter("optimizer_steps", "Steps of optimizers.", base, steps, zero=True)
    text = "Trace events lost to a full ring."
    out.counter("trace_events_dropped", text, base, process.trace_dropped)
    add_collectives(out, base, more.collectives(view))
    for cost in more.ops(view):
        labels = Labels(base, op=cost.op)  # not kept: there are many names
        text = "Sampled tasks by operator: one task in 16."
        out.counter("op_sampled_tasks", text, labels, cost.tasks)
        text = "Time of sampled tasks by operator: one task in 16."
        out.counter("op_sampled_seconds", text, labels, cost.ns / _S)


def _add_device(
    out: Families, device: DeviceStats, streams: Sequence[StreamView], labels: Labels
) -> None:
    states = Counter(stream.state for stream in streams)
    for state in _STATES:
        text = "Streams by what they do now."
        out.gauge("streams", text, labels.also("state", state), states[state])
    for reason, n in device.waits.items():
        by = labels.also("reason", _REASONS.get(reason, reason))
        text = "Waits of host threads for the device."
        out.counter("host_sync", text, by, n, zero=True)
        out.counter(
            "host_sync_seconds",
            "Time host threads waited for the device, also in waits that last.",
            by,
            device.wait_ns[reason] / _S,
            zero=True,
        )
    for code in streams[0].stats.errors if streams else ():
        text = "Failures that poisoned a stream."
        n = sum(s.stats.errors[code] for s in streams)
        out.counter("async_errors", text, labels.also("code", code), n, zero=True)
    for mode, reasons in device.sync_violations.items():
        for reason, n in reasons.items():
            by = labels.also("mode", mode)
            by = by.also("reason", _REASONS.get(reason, reason))
            text = "Waits where a guard forbids them."
            out.counter("sync_violations", text, by, n)
    for kind, n in device.sanitizer_reports.items():
        by = labels.also("kind", kind)
        out.counter("sanitizer_reports", "Different races and misuses found.", by, n)
    for direction, counts in device.copy_bytes.items():
        for pinned, n in zip(("false", "true"), counts, strict=True):
            by = labels.also("direction", direction).also("pinned", pinned)
            out.counter("copy_bytes", "Bytes copied.", by, n)
    plain = (
        ("graph_captures", "Graph captures that succeeded.", device.graph_captures),
        ("graph_replays", "Graph replays.", device.graph_replays),
        ("events_created", "Events recorded for a first time.", device.events_created),
        ("events_recorded", "Records of events.", device.events_recorded),
    )
    for name, text, n in plain:
        out.counter(name, text, labels, n)
    out.gauge(
        "events_pending",
        "Events recorded that nobody has seen done yet.",
        labels,
        device.events_pending,
    )
    for reason, n in device.graph_capture_failures.items():
        text = "Graph captures in which something was not allowed, or given up."
        out.counter("graph_capture_failures", text, labels.also("reason", reason), n)
    if device.sanitizer_bytes:
        text = "Memory of the race sanitizer's own."
        out.gauge("sanitizer_tracked_bytes", text, labels, device.sanitizer_bytes)
    out.counter(
        "sanitizer_overhead_seconds",
        "Time spent in the race sanitizer.",
        labels,
        device.sanitizer_ns / _S,
    )


def _add_allocator(out: Families, device: DeviceStats, labels: Labels) -> None:
    gauges = (
        ("allocated", "Memory in tensors.", device.allocated),
        ("allocated_peak", "The most memory in tensors.", device.allocated_peak),
        ("reserved", "Memory the allocator holds of the device.", device.reserved),
        ("limit", "Memory of the device.", device.memory_total),
    )
    for name, text, n in gauges:
        out.gauge(f"memory_{name}_bytes", text, labels, n)
    counters = (
        ("alloc", "Allocations.", device.allocations),
        (
            "alloc_retries",
            "Allocations tried again after releasing the cache.",
            device.alloc_retries,
        ),
        ("oom", "Allocations refused.", device.ooms),
    )
    for name, text, n in counters:
        out.counter(f"memory_{name}", text, labels, n, zero=True)


def _add_queue(
    out: Families, stream: StreamView, labels: Labels, offset: float
) -> None:
    s = stream.stats
    taken = 1 if s.depth and not s.idle else 0

    def gauge(name: str, text: str, value: float) -> None:
        out.gauge(name, text, labels, value)

    def moment(name: str, text: str, tick: float | None) -> None:
        out.gauge(name, text, labels, None if tick is None else tick + offset)

    gauge("queue_depth", "Tasks enqueued, not yet taken.", s.depth - taken)
    gauge("queue_depth_max", "Most tasks seen in a minute.", stream.depth_max)
    gauge("queue_capacity", "Tasks that fit.", s.capacity)
    moment(
        "oldest_task_enqueued_timestamp_seconds",
        "When the oldest task that is not complete was enqueued, told by one in 16.",
        stream.oldest_queued,
    )
    moment(
        "last_completion_timestamp_seconds",
        "When a task was last known to complete.",
        stream.last_completion,
    )
    moment(
        "consumer_heartbeat_timestamp_seconds",
        "When the launcher thread was last seen to exist.",
        stream.thread_alive,
    )
    if s.state == "failed":
        gauge("stream_error_state", "1 while the stream has failed.", 1)
    if s.deferred_bytes:
        text = "Memory freed that another stream may still use."
        gauge("memory_deferred_free_bytes", text, s.deferred_bytes)
    text = "Tasks submitted."
    out.counter("tasks_enqueued", text, labels, s.submitted, zero=True)
    ok = max(0, s.retired - s.failed - s.dropped)
    text = "Tasks that ended."
    by = labels.also("status", "ok")
    out.counter("tasks_completed", text, by, ok, zero=True)
    for status, n in (("error", s.failed), ("cancelled", s.dropped)):
        out.counter("tasks_completed", text, labels.also("status", status), n)
    for reason, n in s.bypassed.items():
        text = "Tasks that ran on the caller, past the queue."
        out.counter("tasks_bypassed", text, labels.also("reason", reason), n)
    text = "Times a caller met a full queue."
    out.counter("enqueue_blocked", text, labels, s.full_waits)
    text = "Time callers met a full queue."
    out.counter("enqueue_blocked_seconds", text, labels, s.full_wait_ns / _S)
    text = "Time the launcher ran tasks."
    out.counter("stream_busy_seconds", text, labels, s.busy_ns / _S, zero=True)
    text = "Idle time within 1 ms of the last launch."
    starved = s.starved_ns / _S
    out.counter("stream_idle_starved_seconds", text, labels, starved, zero=True)
    for cause, ns in s.held_ns_by.items():
        text = "Time the stream was held by a dependency."
        out.counter("stream_wait_seconds", text, labels.also("cause", cause), ns / _S)


def _add_thread(out: Families, stream: StreamView, labels: Labels) -> None:
    s = stream.stats
    taken = 1 if s.depth and not s.idle else 0
    text = "Tasks taken, not complete."
    out.gauge("stream_inflight_tasks", text, labels, taken)
    for reason, (n, ns) in s.drains.items():
        by = labels.also("reason", _REASONS.get(reason, reason))
        text = "Host waits for all that a stream had been given."
        out.counter("queue_drain", text, by, n)
        text = "Time of host waits for all that a stream had been given."
        out.counter("queue_drain_seconds", text, by, ns / _S)
    for how, n in (("spin", s.spins), ("park", s.parks)):
        text = "How the launcher's idle gaps ended."
        out.counter("consumer_wakeups", text, labels.also("how", how), n)
    if stream.cpu_seconds is not None:
        text = "CPU time of the launcher thread."
        out.counter("consumer_cpu_seconds", text, labels, stream.cpu_seconds)


def _sum(histograms: Iterable[Histogram]) -> Histogram:
    return reduce(Histogram.__add__, histograms)


def _add_times(
    out: Families,
    streams: Sequence[StreamView],
    labels: Labels,
    view: ProcessView,
    more: More,
) -> None:
    """Add the histograms of some streams, together."""
    stats = [stream.stats for stream in streams]

    def tasks_of(name: str) -> Sequence[Exemplar]:
        found = [more.exemplars(view, s.device, s.stream, name) for s in stats]
        return sorted((e for each in found for e in each), key=lambda e: e.value_ns)

    out.histogram(
        "launch_overhead_seconds",
        "Time inside enqueue on the caller, of one task in 16.",
        labels,
        _sum(s.launch_ns for s in stats),
        LAUNCH_BOUNDS,
    )
    out.histogram(
        "queue_wait_seconds",
        "From enqueue to taken, of one task in 16.",
        labels,
        _sum(s.queued_ns for s in stats),
        exemplars=tasks_of("queued"),
    )
    for kind in stats[0].run_ns:
        histogram = _sum(s.run_ns[kind] for s in stats)
        if kind == "kernel" or histogram.count:
            out.histogram(
                "task_duration_seconds",
                "From taken to complete, of one task in 16.",
                labels.also("kind", kind),
                histogram,
            )
    out.histogram(
        "task_latency_seconds",
        "From enqueue to complete, of one task in 16.",
        labels,
        _sum(s.latency_ns for s in stats),
        exemplars=tasks_of("latency"),
    )
