"""The metrics that counters become: names, labels and values, in no text format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from typing import NamedTuple

import npu_dispatch
from npu_dispatch.processes import ProcessView, StreamView, is_alive
from npu_dispatch.processes.script_name import name_of
from npu_dispatch.stats import LAYOUT_VERSION, DeviceStats, Histogram, OpCost
from npu_dispatch.stats.layout import SAMPLE_PERIOD
from npu_dispatch.versions import TORCH_VERSION

__all__ = [
    "LATENCY_BOUNDS",
    "LAUNCH_BOUNDS",
    "Exemplar",
    "Family",
    "Labels",
    "Row",
    "families",
]

_US, _MS, _S = 1e3, 1e6, 1e9
# Upper bounds of classic histograms, in nanoseconds.
LAUNCH_BOUNDS = (*(0.25 * _US * 2**i for i in range(12)), _MS)
LATENCY_BOUNDS = (
    *(n * _US for n in (1, 2.5, 5, 10, 25, 50, 100, 250, 500)),
    *(n * _MS for n in (1, 2.5, 5, 10, 50, 100)),
    *(n * _S for n in (1, 10)),
)
_STATES = ("idle", "running", "blocked_on_event", "error", "capturing")
QUIET_SECONDS = 300.0
# Waits that have another name in the metrics.
_REASONS = {"copy": "d2h"}
# These are present from the first task on, so that a first event is seen as a rise.
_ALWAYS_DRAINS = ("stream_sync", "device_sync")


class Labels(dict[str, str]):
    """Labels, which never change; their text is made once, when it is needed."""

    __slots__ = ("_more", "text")

    def __init__(self, *pairs: Mapping[str, str], **labels: str) -> None:
        super().__init__(*pairs, **labels)
        self._more: dict[tuple[str, str], Labels] = {}
        self.text = ""

    def also(self, name: str, value: str) -> Labels:
        """Return these and one more; its values must be few, as the result is kept."""
        key = name, value
        found = self._more.get(key)
        if found is None:
            found = self._more[key] = Labels(self, **{name: value})
        return found


# Labels repeat at every scrape, a quarter of which would go into making them.
@lru_cache(maxsize=1 << 12)
def _labels(rank: str | None, device: int | None, stream: int | None) -> Labels:
    given = (("device", device), ("stream", stream), ("local_rank", rank))
    return Labels({name: str(value) for name, value in given if value is not None})


class Exemplar(NamedTuple):
    """One task of a histogram. `time` in seconds since 1970."""

    task: int
    value_ns: float
    time: float


# Returns, for a view and a stream, tasks of the histogram "latency" or "queued".
ExemplarsOf = Callable[[ProcessView, int, int, str], Sequence[Exemplar]]
# Returns, for a view, what its operators cost: the series to show.
OpsOf = Callable[[ProcessView], Sequence[OpCost]]


# Not a dataclass: there are thousands, and making one of these takes a third as long.
class Row(NamedTuple):
    labels: Labels
    value: float = 0.0
    histogram: Histogram | None = None  # of nanoseconds
    exemplars: Sequence[Exemplar] = ()  # tasks of it, rising


@dataclass(slots=True)
class Family:
    """One metric. `name` is without the suffix (_total, _info) of its kind."""

    name: str
    kind: str  # counter, gauge, histogram, info
    help: str
    bounds: Sequence[float] = ()
    rows: list[Row] = field(default_factory=list)

    def add(self, labels: Labels, value: float) -> None:
        self.rows.append(Row(labels, value))

    @property
    def unit(self) -> str:
        last = self.name.rpartition("_")[2]
        return last if last in ("seconds", "bytes") else ""


class _Set:
    """Families in the order of their first use."""

    def __init__(self) -> None:
        self._by_name: dict[str, Family] = {}

    def _add(self, name: str, kind: str, text: str, row: Row) -> Family:
        family = self._by_name.get(name)
        if family is None:
            family = Family(f"npu_dispatch_{name}", kind, text)
            self._by_name[name] = family
        family.rows.append(row)
        return family

    def counter(self, name: str, text: str, labels: Labels, value: float) -> None:
        self._add(name, "counter", text, Row(labels, value))

    def gauge(self, name: str, text: str, labels: Labels, value: float | None) -> None:
        if value is not None:
            self._add(name, "gauge", text, Row(labels, value))

    def info(self, name: str, text: str, labels: Labels) -> None:
        self._add(name, "info", text, Row(labels, 1.0))

    def histogram(
        self,
        name: str,
        text: str,
        labels: Labels,
        value: Histogram,
        bounds: Sequence[float] = LATENCY_BOUNDS,
        exemplars: Sequence[Exemplar] = (),
    ) -> None:
        row = Row(labels, histogram=value, exemplars=exemplars)
        family = self._add(name, "histogram", text, row)
        family.bounds = bounds

    def all(self) -> Iterable[Family]:
        return self._by_name.values()


def families(
    views: Sequence[ProcessView],
    *,
    ranked: bool = False,
    exemplars: ExemplarsOf | None = None,
    ops: OpsOf | None = None,
) -> list[Family]:
    """Return every metric of these processes.

    `ranked` adds the label `local_rank`, without which the series of two processes
    would be the same. With `ops` there are metrics by operator.
    """
    out = _Set()
    for view in views:
        rank = view.slot if ranked else None
        base = _labels(rank, None, None)
        _add_process(out, view, base)
        for device in view.devices:
            streams = [s for s in view.streams if s.stats.device == device.device]
            _add_device(out, device, streams, _labels(rank, device.device, None))
        for stream in view.streams:
            if not stream.stats.submitted or _is_quiet(view, stream):
                continue  # it was never used, or is not any more
            labels = _labels(rank, stream.stats.device, stream.stats.stream)
            _add_queue(out, stream, labels)
            _add_times(out, stream, labels, view, exemplars)
        if ops:
            _add_ops(out, ops(view), base)
    return list(out.all())


def _is_quiet(view: ProcessView, stream: StreamView) -> bool:
    """Return whether a stream is left out until it is used again.

    The default stream never is, nor is one that has failed or has work.
    """
    s = stream.stats
    if s.stream == 0 or s.depth or s.state == "failed":
        return False
    last = stream.last_completion
    return last is not None and view.time - last > QUIET_SECONDS


def _add_process(out: _Set, view: ProcessView, base: Labels) -> None:
    info, process = view.info, view.process
    out.info(
        "build",
        "What is running.",
        Labels(
            base,
            version=npu_dispatch.__version__,
            torch=TORCH_VERSION,
            abi=str(LAYOUT_VERSION),
            mode="virtual",
        ),
    )
    identity = {
        "pid": str(info.pid),
        "name": name_of(info.pid) if is_alive(info) else "",
        "rank": info.rank,
        "local_rank": info.local_rank,
        "world_size": info.world_size,
        "job_id": info.job_id,
        "pod": info.pod,
    }
    out.info("process", "Which process this is.", Labels(identity, **base))
    out.gauge(
        "snapshot_timestamp_seconds",
        "When the counters were read from the living process.",
        base,
        view.time,
    )
    out.gauge(
        "sanitizer_enabled",
        "1 while the race sanitizer is on.",
        base,
        process.sanitizer_enabled,
    )
    out.counter(
        "trace_events_dropped",
        "Trace events lost to a full ring.",
        base,
        process.trace_dropped,
    )
    out.gauge(
        "unpublished_streams",
        "Streams without figures here: no memory or no room in the segment.",
        base,
        process.unpublished_streams,
    )
    out.gauge(
        "async_waiters", "Futures that await a device.", base, process.async_waiters
    )
    out.histogram(
        "async_wakeup_seconds",
        "From the device being done to the coroutine running.",
        base,
        process.async_wakeup_ns,
    )


def _add_device(
    out: _Set, device: DeviceStats, streams: Sequence[StreamView], labels: Labels
) -> None:
    states = Counter(stream.state for stream in streams)
    for state in _STATES:
        text = "Streams by what they do now."
        out.gauge("streams", text, labels.also("state", state), states[state])
    launches = [s.stats.launch_ns for s in streams if s.stats.submitted]
    if launches:
        out.histogram(
            "launch_overhead_seconds",
            "Time inside enqueue on the caller, of one task in 16.",
            labels,
            reduce(Histogram.__add__, launches),
            LAUNCH_BOUNDS,
        )
    for reason, n in device.waits.items():
        by = labels.also("reason", _REASONS.get(reason, reason))
        out.counter("host_sync", "Waits of host threads for the device.", by, n)
        out.counter(
            "host_sync_seconds",
            "Time host threads waited for the device, also in waits that last.",
            by,
            device.wait_ns[reason] / _S,
        )
    for mode, reasons in device.sync_violations.items():
        for reason, n in reasons.items():
            out.counter(
                "sync_violations",
                "Waits where a guard forbids them.",
                labels.also("mode", mode).also("reason", _REASONS.get(reason, reason)),
                n,
            )
    for kind, n in device.sanitizer_reports.items():
        out.counter(
            "sanitizer_reports",
            "Different races and misuses found.",
            labels.also("kind", kind),
            n,
        )
    for direction, counts in device.copy_bytes.items():
        for pinned, n in zip(("false", "true"), counts, strict=True):
            out.counter(
                "copy_bytes",
                "Bytes copied.",
                labels.also("direction", direction).also("pinned", pinned),
                n,
            )
    out.gauge("memory_allocated_bytes", "Memory in tensors.", labels, device.allocated)
    out.gauge(
        "memory_reserved_bytes",
        "Memory the allocator holds of the device.",
        labels,
        device.reserved,
    )
    out.gauge(
        "memory_limit_bytes", "Memory of the device.", labels, device.memory_total
    )
    out.gauge(
        "sanitizer_tracked_bytes",
        "Memory of the race sanitizer's own.",
        labels,
        device.sanitizer_bytes,
    )
    plain = (
        ("memory_alloc", "Allocations.", device.allocations),
        (
            "memory_alloc_retries",
            "Allocations tried again after releasing the cache.",
            device.alloc_retries,
        ),
        ("memory_oom", "Allocations refused.", device.ooms),
        ("graph_captures", "Graph captures that succeeded.", device.graph_captures),
        ("graph_replays", "Graph replays.", device.graph_replays),
        (
            "events_created",
            "Events recorded for the first time.",
            device.events_created,
        ),
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
    out.counter(
        "sanitizer_overhead_seconds",
        "Time spent in the race sanitizer.",
        labels,
        device.sanitizer_ns / _S,
    )


def _add_queue(out: _Set, stream: StreamView, labels: Labels) -> None:
    s = stream.stats
    taken = 1 if s.depth and not s.idle else 0

    def gauge(name: str, text: str, value: float | None) -> None:
        out.gauge(name, text, labels, value)

    gauge("queue_depth", "Tasks enqueued, not yet taken.", s.depth - taken)
    gauge("queue_depth_max", "Most tasks seen in a minute.", stream.depth_max)
    gauge("queue_capacity", "Tasks that fit.", s.capacity)
    gauge("stream_inflight_tasks", "Tasks taken, not complete.", taken)
    gauge(
        "oldest_task_enqueued_timestamp_seconds",
        "When the oldest task that is not complete was enqueued, or later.",
        stream.oldest_since,
    )
    gauge(
        "last_completion_timestamp_seconds",
        "When a task was last known to complete.",
        stream.last_completion,
    )
    gauge(
        "consumer_heartbeat_timestamp_seconds",
        "When the launcher thread was last seen to exist.",
        stream.thread_alive,
    )
    gauge("stream_error_state", "1 while the stream has failed.", s.state == "failed")
    gauge(
        "memory_deferred_free_bytes",
        "Memory freed that another stream may still use.",
        s.deferred_bytes,
    )
    out.counter("tasks_enqueued", "Tasks submitted.", labels, s.submitted)
    ok = max(0, s.retired - s.failed - s.dropped)
    for status, n in (("ok", ok), ("error", s.failed), ("cancelled", s.dropped)):
        text = "Tasks that ended."
        out.counter("tasks_completed", text, labels.also("status", status), n)
    for reason, n in s.bypassed.items():
        text = "Tasks that ran on the caller, past the queue."
        out.counter("tasks_bypassed", text, labels.also("reason", reason), n)
    out.counter(
        "enqueue_blocked", "Times a caller met a full queue.", labels, s.full_waits
    )
    for code, n in s.errors.items():
        text = "Failures that poisoned the stream."
        out.counter("async_errors", text, labels.also("code", code), n)


def _add_times(
    out: _Set,
    stream: StreamView,
    labels: Labels,
    view: ProcessView,
    exemplars: ExemplarsOf | None,
) -> None:
    s = stream.stats

    def tasks_of(histogram: str) -> Sequence[Exemplar]:
        return exemplars(view, s.device, s.stream, histogram) if exemplars else ()

    seconds = (
        ("enqueue_blocked_seconds", "Time callers met a full queue.", s.full_wait_ns),
        ("stream_busy_seconds", "Time the launcher ran tasks.", s.busy_ns),
        (
            "stream_idle_starved_seconds",
            "Idle time within 1 ms of the last launch.",
            s.starved_ns,
        ),
    )
    for name, text, ns in seconds:
        out.counter(name, text, labels, ns / _S)
    for cause, ns in s.held_ns_by.items():
        text = "Time the stream was held by a dependency."
        out.counter("stream_wait_seconds", text, labels.also("cause", cause), ns / _S)
    for reason, (n, ns) in s.drains.items():
        if reason not in _ALWAYS_DRAINS and not n:
            continue
        by = labels.also("reason", _REASONS.get(reason, reason))
        out.counter(
            "queue_drain", "Host waits for all that a stream had been given.", by, n
        )
        text = "Time of host waits for all that a stream had been given."
        out.counter("queue_drain_seconds", text, by, ns / _S)
    for how, n in (("spin", s.spins), ("park", s.parks)):
        text = "How the launcher's idle gaps ended."
        out.counter("consumer_wakeups", text, labels.also("how", how), n)
    if stream.cpu_seconds is not None:
        out.counter(
            "consumer_cpu_seconds",
            "CPU time of the launcher thread.",
            labels,
            stream.cpu_seconds,
        )
    out.histogram(
        "queue_wait_seconds",
        "From enqueue to taken, of one task in 16.",
        labels,
        s.queued_ns,
        exemplars=tasks_of("queued"),
    )
    for kind, histogram in s.run_ns.items():
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
        s.latency_ns,
        exemplars=tasks_of("latency"),
    )


def _add_ops(out: _Set, costs: Sequence[OpCost], base: Labels) -> None:
    """Add metrics by operator, for which one task in SAMPLE_PERIOD is counted."""
    for cost in costs:
        labels = Labels(base, op=cost.op)  # not kept: there are many names
        text = "Tasks by operator, from one task in 16."
        out.counter("op_tasks", text, labels, cost.tasks * SAMPLE_PERIOD)
        text = "Time of tasks by operator, from one task in 16."
        seconds = cost.ns * SAMPLE_PERIOD / _S
        out.counter("op_duration_seconds", text, labels, seconds)
