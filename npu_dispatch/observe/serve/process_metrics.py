"""The metrics that the counters of a process become.

Metrics of time are histograms by device, and by stream where that is asked for. A
sampled metric counts one task in SAMPLE_PERIOD, and its name or its help says so.
"""

from __future__ import annotations

import re
import socket
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple
from weakref import WeakKeyDictionary

from prometheus_client.samples import Exemplar

from npu_dispatch.config import Config
from npu_dispatch.observe.judge.verdict import KINDS, Verdict
from npu_dispatch.observe.segment import StatsReader
from npu_dispatch.observe.segment.collectives import CollectiveTotal
from npu_dispatch.observe.segment.listing import ProcessView, StreamView
from npu_dispatch.observe.segment.system import unix_offset_ns
from npu_dispatch.observe.segment.values import DeviceStats, Histogram, OpCost
from npu_dispatch.observe.serve.families import LAUNCH_BOUNDS, Families, Labels
from npu_dispatch.observe.serve.options import ServiceConfig
from npu_dispatch.words import short

_S = 1e9
_STATES = ("idle", "running", "blocked_on_event", "error", "capturing")
QUIET_SECONDS = 300.0
# Waits that have another name in the metrics.
_REASONS = {"copy": "d2h"}
_TOKEN = 8  # letters of a group's token, which are enough to tell groups apart

# Metrics that are an attribute of a reading: what the reading is of, the metric's kind,
# the attribute, the metric's name, the label of the keys where the attribute is a dict,
# and the help. With `0` it is shown while it is 0, too. Nanoseconds become seconds.
_TABLE = """
process gauge0 sanitizer_enabled sanitizer_enabled: 1 while the race sanitizer is on.
process gauge0 async_waiters async_waiters: Futures that await a device.
process gauge unpublished_streams unpublished_streams:
    Streams without figures here: no memory or no room in the segment.
process counter0 optimizer_steps optimizer_steps: Steps of optimizers.
process counter trace_dropped trace_events_dropped: Trace events lost to a full ring.
op counter tasks op_sampled_tasks: Sampled tasks by operator: one task in 16.
op counter ns op_sampled_seconds: Time of sampled tasks by operator: one task in 16.
collective counter0 bytes collective_bytes:
    Bytes that this rank gave to collective calls, or else received.
collective counter0 queued_ns collective_queued_seconds:
    Time of calls before their start.
collective counter0 waited_ns collective_wait_seconds:
    Part of collective_seconds in which not all ranks had called.
collective counter0 exposed_ns collective_exposed_seconds:
    Part of collective_seconds in which nothing else ran on the device.
collective counter0 host_wait_ns collective_host_wait_seconds:
    Part of the exposed time in which the host waited for the device.
collective counter failed collectives_failed: Collective calls that failed.
device counter0 waits host_sync reason: Waits of host threads for the device.
device counter0 wait_ns host_sync_seconds reason:
    Time host threads waited for the device, also in waits that last.
device counter sanitizer_reports sanitizer_reports kind:
    Different races and misuses found.
device gauge sanitizer_bytes sanitizer_tracked_bytes:
    Memory of the race sanitizer's own.
device counter sanitizer_ns sanitizer_overhead_seconds:
    Time spent in the race sanitizer.
device gauge0 events_pending events_pending:
    Events recorded that nobody has seen done yet.
device counter events_created events_created: Events recorded for a first time.
device counter events_recorded events_recorded: Records of events.
device counter graph_captures graph_captures: Graph captures that succeeded.
device counter graph_replays graph_replays: Graph replays.
device counter graph_capture_failures graph_capture_failures reason:
    Graph captures in which something was not allowed, or given up.
device gauge0 allocated memory_allocated_bytes: Memory in tensors.
device gauge0 allocated_peak memory_allocated_peak_bytes: The most memory in tensors.
device gauge0 reserved memory_reserved_bytes: Memory the allocator holds of the device.
device gauge0 memory_total memory_limit_bytes: Memory of the device.
device counter0 allocations memory_alloc: Allocations.
device counter0 alloc_retries memory_alloc_retries:
    Allocations tried again after releasing the cache.
device counter0 ooms memory_oom: Allocations refused.
stream gauge0 capacity queue_capacity: Tasks that fit.
stream gauge deferred_bytes memory_deferred_free_bytes:
    Memory freed that another stream may still use.
stream counter0 submitted tasks_enqueued: Tasks submitted.
stream counter bypassed tasks_bypassed reason:
    Tasks that ran on the caller, past the queue.
stream counter full_waits enqueue_blocked: Times a caller met a full queue.
stream counter full_wait_ns enqueue_blocked_seconds: Time callers met a full queue.
stream counter0 busy_ns stream_busy_seconds: Time the launcher ran tasks.
stream counter0 starved_ns stream_idle_starved_seconds:
    Idle time within 1 ms of the last launch.
stream counter held_ns_by stream_wait_seconds cause:
    Time the stream was held by a dependency.
"""


def _metrics() -> dict[str, list[tuple[str, str, str, str, str]]]:
    """Return kind, attribute, name, label and help of each metric of the table."""
    found = defaultdict(list)
    for line in re.sub(r"\n +", " ", _TABLE).strip().splitlines():
        words, _, text = line.partition(": ")
        of, kind, attribute, name, *label = words.split()
        found[of].append((kind, attribute, name, "".join(label), text))
    return found


_METRICS = _metrics()


def _add_table(out: Families, of: str, one: object, labels: Labels) -> None:
    """Add the metrics of the table that are of such a reading."""
    for kind, attribute, name, label, text in _METRICS[of]:
        value = getattr(one, attribute)
        for key, n in value.items() if label else [("", value)]:
            key = _REASONS.get(key, key) if label == "reason" else key
            by = labels.also(label, key) if label else labels
            number = n / _S if name.endswith("_seconds") else n
            if kind.startswith("gauge"):
                out.gauge(name, text, by, number if number or kind[-1] == "0" else None)
            else:
                out.counter(name, text, by, number, zero=kind[-1] == "0")


class More(NamedTuple):
    """What is known of a process beside its view."""

    verdict: Verdict
    ops: Sequence[OpCost]  # the series to show
    # Tasks of the histogram "latency" or "queued" of a device and stream.
    exemplars: Callable[[int, int, str], Sequence[Exemplar]]


@cache
def _host(ranked: bool) -> str:
    """Return the node that the environment names, or where many are, this machine."""
    return Config.read().node_name or (socket.gethostname() if ranked else "")


# By process. Labels repeat at every scrape, a quarter of which would go into making
# them.
_kept: WeakKeyDictionary[StatsReader, Labels] = WeakKeyDictionary()


def _labels(view: ProcessView, ranked: bool) -> Labels:
    """Return the labels of all metrics of a process."""
    info = view.info
    given = {
        "process": view.id if ranked else "",
        "rank": info.rank,
        "local_rank": info.local_rank,
        "job_id": info.job_id,
        "host": _host(ranked),
        "pod": info.pod,
    }
    labels = Labels({name: value for name, value in given.items() if value})
    kept = _kept.get(view.reader)
    if kept != labels:  # a process learns its rank when it joins its group
        kept = _kept[view.reader] = labels
    return kept


def add_process(
    out: Families, view: ProcessView, more: More, config: ServiceConfig
) -> None:
    """Add every metric of a process, with its `id` if others are shown, too."""
    per_stream = config.per_stream
    base = _labels(view, ranked=config.pid is None)
    _add_whole(out, view, more, base)
    for total in view.totals:
        _add_collective(out, base, total)
    used = [s for s in view.streams if s.stats.submitted]
    offset = unix_offset_ns() / _S
    for device in view.devices:
        streams = [s for s in view.streams if s.stats.device == device.device]
        labels = base.also("device", str(device.device))
        _add_device(out, device, streams, labels)
        mine = [s for s in streams if s.stats.submitted]
        if mine and not per_stream:
            _add_times(out, mine, labels, more)
    for stream in used:
        if _is_quiet(view, stream):
            continue
        labels = base.also("device", str(stream.stats.device))
        labels = labels.also("stream", str(stream.stats.stream))
        _add_queue(out, stream, labels, offset)
        if per_stream:
            _add_thread(out, stream, labels)
            _add_times(out, [stream], labels, more)


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
    labels = Labels(
        base,
        pid=str(info.pid),
        name=info.name,
        user=view.user,
        world_size=info.world_size,
        version=info.package,
        torch=info.torch,
    )
    out.info("process", "Which process this is.", labels)
    text = "1 for what holds the process up."
    for each in KINDS:
        labels = base.also("kind", each)
        out.gauge("process_verdict", text, labels, each == more.verdict.kind)
    if more.verdict.at:
        text = "The Python line of the verdict, while it has one."
        at = {"kind": more.verdict.kind, "line": short(more.verdict.at)}
        out.info("process_line", text, Labels(base, **at))
    text = "When the counters were read from the living process."
    read = view.tick + unix_offset_ns() / _S
    out.gauge("snapshot_timestamp_seconds", text, base, read)
    _add_table(out, "process", process, base)
    if process.async_wakeup_ns.count:
        text = "From the device being done to the coroutine running."
        out.histogram("async_wakeup_seconds", text, base, process.async_wakeup_ns)
    for cost in more.ops:
        # These labels are not kept: there are many names.
        _add_table(out, "op", cost, Labels(base, op=cost.op))


def _add_collective(out: Families, base: Labels, total: CollectiveTotal) -> None:
    """Add what the calls of one collective in one group have cost.

    The label `rank` is the rank of the world, also in a group of some of its ranks
    and where the process has no RANK in its environment.
    """
    group = total.group
    rank, collective = str(group.global_rank), total.name
    labels = Labels(base, rank=rank, group=group.title, collective=collective)
    if group.token:
        labels["group_token"] = group.token[:_TOKEN]
    text = "Time of collective calls from start to end, by calls that are done."
    out.histogram("collective_seconds", text, labels, total.run)
    _add_table(out, "collective", total, labels)


def _add_device(
    out: Families, device: DeviceStats, streams: Sequence[StreamView], labels: Labels
) -> None:
    states = Counter(stream.state for stream in streams)
    for state in _STATES:
        text = "Streams by what they do now."
        out.gauge("streams", text, labels.also("state", state), states[state])
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
    for direction, counts in device.copy_bytes.items():
        for pinned, n in zip(("false", "true"), counts, strict=True):
            by = labels.also("direction", direction).also("pinned", pinned)
            out.counter("copy_bytes", "Bytes copied.", by, n)
    _add_table(out, "device", device, labels)


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
        text = "1 while the stream has failed."
        at = {"line": short(s.failure_at)} if s.failure_at else {}
        out.gauge("stream_error_state", text, Labels(labels, **at), 1)
    ok = max(0, s.retired - s.failed - s.dropped)
    text = "Tasks that ended."
    by = labels.also("status", "ok")
    out.counter("tasks_completed", text, by, ok, zero=True)
    for status, n in (("error", s.failed), ("cancelled", s.dropped)):
        out.counter("tasks_completed", text, labels.also("status", status), n)
    _add_table(out, "stream", s, labels)


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


def _add_times(
    out: Families, streams: Sequence[StreamView], labels: Labels, more: More
) -> None:
    """Add the histograms of some streams, together."""
    stats = [stream.stats for stream in streams]

    def tasks_of(name: str) -> list[Exemplar]:
        found = [more.exemplars(s.device, s.stream, name) for s in stats]
        return sorted((e for each in found for e in each), key=lambda e: e.value)

    text = "From an operator's entry until its task is queued, of one call in 16."
    called = Histogram.total(s.call_ns for s in stats)
    out.histogram("launch_sampled_seconds", text, labels, called, LAUNCH_BOUNDS)
    text = "The part of a launch that puts the task into the queue, of one in 16."
    pushed = Histogram.total(s.launch_ns for s in stats)
    out.histogram("launch_overhead_seconds", text, labels, pushed, LAUNCH_BOUNDS)
    text = "From enqueue to taken, of one task in 16."
    queued, tasks = Histogram.total(s.queued_ns for s in stats), tasks_of("queued")
    out.histogram("queue_wait_seconds", text, labels, queued, exemplars=tasks)
    text = "From taken to complete, of one task in 16."
    for kind in stats[0].run_ns:
        ran = Histogram.total(s.run_ns[kind] for s in stats)
        if kind == "kernel" or ran.count:
            by = labels.also("kind", kind)
            out.histogram("task_duration_seconds", text, by, ran)
    text = "From enqueue to complete, of one task in 16."
    latency, tasks = Histogram.total(s.latency_ns for s in stats), tasks_of("latency")
    out.histogram("task_latency_seconds", text, labels, latency, exemplars=tasks)
