"""What holds a process up: judged from two readings of its counters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from npu_dispatch.processes import ProcessView, StreamView

__all__ = [
    "StreamRates",
    "Verdict",
    "ask_python",
    "attention",
    "cycles",
    "judge",
    "quiet_for",
    "short",
    "stream_rates",
    "sync_rates",
]

_DEVICE_BOUND = 0.8  # busy for this share of the time
_BLOCKED = 0.25  # host waits for this share of the time
StreamKey = tuple[int, int]  # device, stream


class Verdict(NamedTuple):
    """`kind`: launch-bound, device-bound, blocked, hung, failed, quiet or idle."""

    kind: str
    text: str


# The order in which processes are shown. Whether the host or the device is short
# may change every second, and rows should not move because of that.
_ATTENTION = {"hung": 0, "failed": 1, "blocked": 2, "idle": 4}


def attention(kind: str) -> int:
    """Return the rank of a verdict's kind; 0 needs attention first."""
    return _ATTENTION.get(kind, 3)


class StreamRates(NamedTuple):
    """Shares of the time between two readings, 0 to 1, and launches per second."""

    launches: float
    retired: float
    busy: float
    idle: float
    starved: float
    held: float


def key(stream: StreamView) -> StreamKey:
    return stream.stats.device, stream.stats.stream


def stream_rates(
    before: ProcessView | None, now: ProcessView
) -> dict[StreamKey, StreamRates]:
    """Return each stream's rates, since its start where no earlier reading has it."""
    old = {key(s): s.stats for s in before.streams} if before else {}
    start = before.time if before else now.info.realtime_ns / 1e9
    dt = max(now.time - start, 1e-6)

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
    start = before.time if before else now.info.realtime_ns / 1e9
    dt = max(now.time - start, 1e-6)
    rates: dict[str, float] = {}
    for view, sign in ((now, 1), (before, -1)):
        for device in view.devices if view else ():
            for reason, ns in device.wait_ns.items():
                rates[reason] = rates.get(reason, 0.0) + sign * ns / 1e9 / dt
    full = sum(s.stats.full_wait_ns for s in now.streams)
    full -= sum(s.stats.full_wait_ns for s in before.streams) if before else 0
    rates["full_queue"] = full / 1e9 / dt
    return {reason: max(0.0, rate) for reason, rate in rates.items()}


def waits_for(view: ProcessView) -> dict[StreamKey, StreamKey]:
    """Return which stream each held stream waits for."""
    return {
        key(s): s.stats.held_by for s in view.streams if s.stats.held_by is not None
    }


def cycles(edges: Mapping[StreamKey, StreamKey]) -> Iterator[list[StreamKey]]:
    """Yield each circle of streams that wait for one another, once."""
    done: set[StreamKey] = set()
    for start in edges:
        path: list[StreamKey] = []
        at: StreamKey | None = start
        while at is not None and at not in done:
            done.add(at)
            path.append(at)
            at = edges.get(at)
        if at in path:
            yield path[path.index(at) :]


def short(line: str) -> str:
    """Return "train.py:12 in step" of "/long/way/train.py:12 in step"."""
    place, of, function = line.partition(" in ")
    return place.rpartition("/")[2] + of + function


def _name(stream: StreamKey) -> str:
    return f"npu:{stream[0]} stream {stream[1]}"


def _count(rate: float) -> str:
    return f"{rate / 1e3:,.0f} k/s" if rate >= 1e3 else f"{rate:,.0f}/s"


def _host_waits(view: ProcessView) -> str:
    """Say where the host thread is that waits longest."""
    found = [wait for wait in view.host_waits if wait.at]
    return f"; the host waits at {short(found[0].at)}" if found else ""


def quiet_for(view: ProcessView) -> str:
    """Say since when a process launches nothing, and what it launched last."""
    seconds = view.time - (view.quiet_since or view.time)
    text = f"nothing launched for {seconds:,.0f} s, nothing queued"
    if view.last_task and view.last_task.at:
        text += f", last {view.last_task.op} at {short(view.last_task.at)}"
    return text


def ask_python(view: ProcessView) -> str:
    """Say how to see what a process's Python does that is not known here."""
    return f"Python is elsewhere: py-spy dump --subprocesses --pid {view.info.pid}"


def _hung(view: ProcessView, seconds: float) -> Verdict | None:
    # Rates cannot tell this, as there are none at the first reading.
    stuck = [
        s
        for s in view.streams
        if s.oldest_since is not None and view.time - s.oldest_since >= seconds
    ]
    if not stuck:
        return None
    edges = waits_for(view)
    for circle in cycles(edges):
        names = " -> ".join(_name(s) for s in [*circle, circle[0]])
        text = f"hung: streams wait in a circle: {names}{_host_waits(view)}"
        return Verdict("hung", text)
    # A held stream is not the cause; the one that it waits for is.
    worst = min(
        stuck, key=lambda s: (s.stats.held_by is not None, s.oldest_since or 0.0)
    )
    age = view.time - (worst.oldest_since or view.time)
    s = worst.stats
    if s.held_by is not None:
        what = f"waits for task {s.held_until:,} of {_name(s.held_by)}"
    else:
        what = f"runs {s.running or 'a task'}"
    return Verdict(
        "hung",
        f"hung: {_name(key(worst))} {what}, no progress for {age:,.0f} s, "
        f"{s.depth:,} tasks queued{_host_waits(view)}",
    )


def judge(
    before: ProcessView | None, now: ProcessView, *, hang_seconds: float = 10.0
) -> Verdict:
    """Return what holds `now` up, since `before`."""
    rates = stream_rates(before, now)
    if hung := _hung(now, hang_seconds):
        return hung
    for stream in now.streams:
        if stream.state == "error":
            s = stream.stats
            text = f"{s.failed} failed, {s.dropped} dropped after it"
            return Verdict("failed", f"failed: {_name(key(stream))}: {text}")
    if now.quiet_since is not None and now.time - now.quiet_since >= hang_seconds:
        return Verdict("quiet", f"quiet: {quiet_for(now)}; {ask_python(now)}")
    launches = sum(rate.launches for rate in rates.values())
    syncs = sync_rates(before, now)
    queued = sum(stream.stats.depth for stream in now.streams)
    if not launches and not queued:
        return Verdict("idle", "idle: nothing launched, nothing queued")
    busy = max((rate.busy for rate in rates.values()), default=0.0)
    host = f"host launches {_count(launches)}"
    if busy >= _DEVICE_BOUND:
        return Verdict("device-bound", f"device-bound: device busy {busy:.0%}, {host}")
    reason, worst = max(syncs.items(), key=lambda item: item[1])
    if sum(syncs.values()) >= _BLOCKED:
        return Verdict(
            "blocked",
            f"blocked: host waits {sum(syncs.values()):.0%} of the time, most for "
            f"{reason.replace('_', ' ')} ({worst:.0%}); device idle {1 - busy:.0%}",
        )
    return Verdict("launch-bound", f"launch-bound: device idle {1 - busy:.0%}, {host}")
