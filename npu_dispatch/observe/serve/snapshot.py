"""Readings as plain values, for JSON.

A trend is what the page's charts show of one reading: little, as ten minutes are kept.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

from npu_dispatch.observe.judge import rates, verdict as verdicts
from npu_dispatch.observe.segment.listing import ProcessView, StreamView
from npu_dispatch.observe.segment.system import unix_ns
from npu_dispatch.observe.segment.values import (
    Histogram,
    SiteWaits,
    StreamStats,
    picked,
)
from npu_dispatch.words import stream_name

_MOST_LINES = 12
_QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_MOST_STREAMS = 16  # whose queues are told apart
_SHARES = ("busy", "held", "starved")
_BYTES = ("allocated", "reserved", "peak", "deferred")


def _host_waits(view: ProcessView) -> list[dict[str, Any]]:
    """Return the host threads that wait now, the longest wait first."""
    return [
        {
            **picked(wait, "thread reason at until"),
            "main": wait.thread == view.info.pid,
            "stream": stream_name(wait.device, wait.stream),
            "age_s": wait.ns / 1e9,
        }
        for wait in view.host_waits
    ]


def _quantiles_us(histogram: Histogram) -> dict[str, float]:
    return {
        name: round(histogram.percentile(q) / 1e3, 3) for name, q in _QUANTILES.items()
    }


def _octaves(histogram: Histogram) -> list[int]:
    """Return counts by power of two of microseconds: [.., <1, <2, <4, ..]."""
    below = histogram.below([1e3 * 2**i for i in range(21)])
    rising = [0, *below, sum(histogram.buckets)]
    return [b - a for a, b in pairwise(rising)]


def _line(site: SiteWaits, ns: int, elapsed: float) -> dict[str, Any]:
    return {
        **picked(site, "at reason"),
        "share": ns / 1e9 / elapsed,
        "count": site.waits,
        "seconds": site.wait_ns / 1e9,
    }


def process_values(
    earlier: rates.Reading | None, reading: rates.Reading, hang_seconds: float
) -> dict[str, Any]:
    """Return one process; rates and percentiles are of the time since `earlier`."""
    before, now = earlier and earlier.view, reading.view
    by_stream = rates.stream_rates(before, now)
    old = rates.streams_of(before)
    verdict = verdicts.judge(earlier, reading, hang_seconds=hang_seconds)
    used = [s for s in now.streams if s.stats.submitted]
    launch = [rates.since(s.stats, old.get(rates.key(s)), "launch_ns") for s in used]
    latency = [rates.since(s.stats, old.get(rates.key(s)), "latency_ns") for s in used]
    edges = verdicts.waits_for(now)
    syncs = rates.sync_rates(before, now)
    values: dict[str, Any] = {
        **picked(now, "id tick user rank world_size"),
        **picked(now.info, "pid name local_rank job_id pod"),
        "time": unix_ns(int(now.tick * 1e9)) / 1e9,
        "began": now.info.monotonic_ns / 1e9,
        "launched": sum(s.stats.submitted + s.stats.inline_tasks for s in now.streams),
        "attention": verdicts.attention(verdict.kind),
        "verdict": verdict._asdict(),
        "launches_per_s": sum(rate.launches for rate in by_stream.values()),
        "launch_us": _quantiles_us(Histogram.total(launch)) if launch else None,
        "latency_octaves": _octaves(Histogram.total(latency)) if latency else [],
        "streams": [
            _stream_values(s, old.get(rates.key(s)), now.tick, by_stream) for s in used
        ],
        "syncs": {
            reason: {
                "share": rate,
                "count": sum(d.waits.get(reason, 0) for d in now.devices),
                "seconds": sum(d.wait_ns.get(reason, 0) for d in now.devices) / 1e9,
                "waiting": sum(d.waiting.get(reason, 0) for d in now.devices),
            }
            for reason, rate in syncs.items()
        },
        # Those that cost most lately come first.
        "lines": [
            _line(site, ns, rates.seconds(before, now))
            for site, ns in rates.late_waits(earlier, reading)[:_MOST_LINES]
        ],
        "waiting": _host_waits(now),
        "errors": [
            {
                "stream": stream_name(s.stats.device, s.stats.stream),
                "failed": s.stats.failed,
                "dropped": s.stats.dropped,
                "codes": {code: n for code, n in s.stats.errors.items() if n},
                "text": s.stats.failure,
                "at": s.stats.failure_at,
            }
            for s in now.streams
            if s.stats.failed or s.stats.dropped
        ],
        "sanitizer": now.process.sanitizer_enabled,
        "async_waiters": now.process.async_waiters,
        "memory": [
            {
                "device": d.device,
                "allocated": d.allocated,
                "peak": d.allocated_peak,
                "reserved": d.reserved,
                "limit": d.memory_total,
                "deferred": sum(
                    s.stats.deferred_bytes
                    for s in now.streams
                    if s.stats.device == d.device
                ),
                "retries": d.alloc_retries,
                "ooms": d.ooms,
            }
            for d in now.devices
        ],
        "reports": {
            kind: sum(d.sanitizer_reports[kind] for d in now.devices)
            for kind in (now.devices[0].sanitizer_reports if now.devices else ())
        },
        "waits_for": [
            {"from": stream_name(*a), "to": stream_name(*b)} for a, b in edges.items()
        ],
        "cycles": [
            [stream_name(*s) for s in circle] for circle in verdicts.cycles(edges)
        ],
    }
    return values | {"trend": _trend(values)}


def _stream_values(
    stream: StreamView, before: StreamStats | None, now: float, by_stream: Any
) -> dict[str, Any]:
    s = stream.stats
    rate = by_stream[rates.key(stream)]
    return {
        "name": stream_name(s.device, s.stream),
        **picked(s, "device stream depth capacity submitted retired failed dropped"),
        **picked(stream, "state depth_max"),
        **picked(rate, "busy idle starved held"),
        "fill": s.depth / s.capacity if s.capacity else 0.0,
        "launches_per_s": rate.launches,
        "retired_per_s": rate.retired,
        "latency_us": _quantiles_us(rates.since(s, before, "latency_ns")),
        "queued_us": _quantiles_us(rates.since(s, before, "queued_ns")),
        "running": s.running if s.depth and not s.idle else None,
        "running_at": s.running_at if s.depth and not s.idle else None,
        "age_s": None if stream.oldest_queued is None else now - stream.oldest_queued,
    }


def _trend(process: dict[str, Any]) -> dict[str, Any]:
    """Return what is drawn over time, of what process_values() returns."""
    streams = process["streams"]
    deepest = sorted(streams, key=lambda s: s["depth"], reverse=True)[:_MOST_STREAMS]
    none = dict.fromkeys(_SHARES, 0.0)
    busiest = max(streams, key=lambda s: [s[name] for name in _SHARES], default=none)
    launch = process["launch_us"] or {}
    waits = {reason: sync["share"] for reason, sync in process["syncs"].items()}
    return {
        "depths": {s["name"]: s["depth"] for s in deepest},
        "device": {name: round(busiest[name], 4) for name in _SHARES},
        "waits": {name: round(share, 4) for name, share in waits.items() if share},
        "launch_us": [launch.get(name, 0.0) for name in ("p50", "p99")],
        "latency_us": [
            max((s["latency_us"][name] for s in streams), default=0.0)
            for name in ("p50", "p99")
        ],
        "octaves": process["latency_octaves"],
        "memory": {n: sum(m[n] for m in process["memory"]) for n in _BYTES},
    }


def point(snapshot: dict[str, Any]) -> dict[str, Any]:
    """Return what is kept of a snapshot."""
    kept = ("id", "pid", "trend")
    return {
        "time": snapshot["time"],
        "tick": snapshot["tick"],
        "processes": [
            {name: process[name] for name in kept} for process in snapshot["processes"]
        ],
    }


def stacks(view: ProcessView) -> dict[str, Any]:
    """Return waiting host threads, each stream's head and last tasks, and lines.

    `lines`: how many of the last tasks each line launched, and what the host
    waited there so far.
    """
    edges = verdicts.waits_for(view)
    launched: Counter[str] = Counter()
    streams = []
    for stream in view.streams:
        s = stream.stats
        recent = view.reader.recent(s.device, s.stream)
        launched.update(task.at for task in recent if task.at)
        held = edges.get(rates.key(stream))
        streams.append(
            {
                "name": stream_name(s.device, s.stream),
                "state": stream.state,
                "head": {
                    "task": s.retired,
                    "op": s.running,
                    "at": s.running_at,
                    "waits_for": stream_name(*held) if held else None,
                }
                if s.depth
                else None,
                "recent": [task._asdict() for task in recent],
            }
        )
    lines = {at: {"at": at, "recent_tasks": n} for at, n in launched.most_common()}
    for site in view.reader.waits_by_site():
        lines.setdefault(site.at, {"at": site.at, "recent_tasks": 0}).update(
            waits=site.waits, wait_seconds=site.wait_ns / 1e9, reason=site.reason
        )
    return {
        "id": view.id,
        "pid": view.info.pid,
        "host_waits": _host_waits(view),
        "streams": streams,
        "lines": list(lines.values()),
    }


def pending_tasks(
    process: dict[str, Any], stream: dict[str, Any], limit: int
) -> dict[str, Any]:
    """Return the task at the head by name, those behind it by number."""
    first, end = stream["retired"], stream["submitted"]
    tasks: list[dict[str, Any]] = [
        {"task": number} for number in range(first, min(end, first + limit))
    ]
    if tasks:
        waits = {edge["from"]: edge["to"] for edge in process["waits_for"]}
        tasks[0] |= {
            "op": stream["running"],
            "age_s": stream["age_s"],
            "waits_for": waits.get(stream["name"]),
        }
    identity = {"id": process["id"], "pid": process["pid"]}
    return {**identity, "stream": stream["name"], "queued": end - first, "tasks": tasks}
