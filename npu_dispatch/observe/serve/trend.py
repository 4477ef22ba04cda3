"""What the page's charts show of one reading: little, as ten minutes of it are kept."""

from __future__ import annotations

from typing import Any

__all__ = ["point", "trend"]

_MOST_STREAMS = 16  # whose queues are told apart
_SHARES = ("busy", "held", "starved")
_BYTES = ("allocated", "reserved", "peak", "deferred")


def trend(process: dict[str, Any]) -> dict[str, Any]:
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
