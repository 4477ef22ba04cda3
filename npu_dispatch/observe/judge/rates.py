"""What two readings of a process's counters say about the time between them."""

from __future__ import annotations

from typing import NamedTuple

from npu_dispatch.observe.segment.listing import ProcessView, StreamView

__all__ = ["StreamKey", "StreamRates", "key", "seconds", "stream_rates", "sync_rates"]

StreamKey = tuple[int, int]  # device, stream


class StreamRates(NamedTuple):
    """Shares of the time between two readings, 0 to 1, and tasks per second."""

    launches: float
    retired: float
    busy: float
    idle: float
    starved: float
    held: float


def key(stream: StreamView) -> StreamKey:
    return stream.stats.device, stream.stats.stream


def seconds(before: ProcessView | None, now: ProcessView) -> float:
    """Return the time since `before`, by default since the process's start."""
    start = before.tick if before else now.info.monotonic_ns / 1e9
    return max(now.tick - start, 1e-6)


def stream_rates(
    before: ProcessView | None, now: ProcessView
) -> dict[StreamKey, StreamRates]:
    """Return each stream's rates, since its start where no earlier reading has it."""
    old = {key(s): s.stats for s in before.streams} if before else {}
    dt = seconds(before, now)

    def share(new: int, old: int) -> float:
        return min(1.0, max(0.0, (new - old) / 1e9 / dt))

    rates = {}
    for stream in now.streams:
        s = stream.stats
        o = old.get(key(stream))
        rates[key(stream)] = StreamRates(
            launches=max(0.0, (s.submitted - (o.submitted if o else 0)) / dt),
            retired=max(0.0, (s.retired - (o.retired if o else 0)) / dt),
            busy=share(s.busy_ns, o.busy_ns if o else 0),
            idle=share(s.idle_ns, o.idle_ns if o else 0),
            starved=share(s.starved_ns, o.starved_ns if o else 0),
            held=share(s.held_ns, o.held_ns if o else 0),
        )
    return rates


def sync_rates(before: ProcessView | None, now: ProcessView) -> dict[str, float]:
    """Return how many host threads waited on average, by reason."""
    dt = seconds(before, now)
    rates: dict[str, float] = {}
    for view, sign in ((now, 1), (before, -1)):
        for device in view.devices if view else ():
            for reason, ns in device.wait_ns.items():
                rates[reason] = rates.get(reason, 0.0) + sign * ns / 1e9 / dt
        full = sum(s.stats.full_wait_ns for s in view.streams) if view else 0
        rates["full_queue"] = rates.get("full_queue", 0.0) + sign * full / 1e9 / dt
    return {reason: max(0.0, rate) for reason, rate in rates.items()}
