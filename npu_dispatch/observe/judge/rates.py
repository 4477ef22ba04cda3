"""Readings of processes, and what was counted between two of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from npu_dispatch.observe.segment import values
from npu_dispatch.observe.segment.listing import ProcessView, StreamView

StreamKey = tuple[int, int]  # device, stream


class Reading(NamedTuple):
    """What a process said at one moment, as far as somebody has asked."""

    view: ProcessView
    lines: Sequence[values.SiteWaits] = ()  # what host waits cost by Python line
    ops: Sequence[values.OpCost] = ()  # the costliest first


class History:
    """The readings of the last seconds, and of each process one that is older."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._of: dict[str, deque[Reading]] = {}

    def note(self, readings: Iterable[Reading]) -> None:
        """Add a reading of each process that lives; forget the others."""
        before, self._of = self._of, {}
        for now in readings:
            past = before.get(now.view.id)
            # A program that replaces itself counts from zero.
            if past is None or past[-1].view.info != now.view.info:
                past = deque()
            past.append(now)
            while len(past) > 1 and now.view.tick - past[1].view.tick > self._seconds:
                past.popleft()
            self._of[now.view.id] = past

    def before(self, view: ProcessView) -> Reading | None:
        """Return a process's newest reading that is old enough, or else its oldest.

        None where the last note() had its first reading.
        """
        past = self._of.get(view.id)
        return past[0] if past and len(past) > 1 else None


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


def since(now: object, before: object | None, name: str) -> Any:
    """Return what a counter or a histogram has gained since `before`; None: all of it.

    A counter that was set back has gained nothing.
    """
    new: Any = getattr(now, name)
    if before is None:
        return new
    gained = new - getattr(before, name)
    return gained if isinstance(new, values.Histogram) else max(0, gained)


def seconds(before: ProcessView | None, now: ProcessView) -> float:
    """Return the time since `before`, by default since the process's start."""
    start = before.tick if before else now.info.monotonic_ns / 1e9
    return max(now.tick - start, 1e-6)


def streams_of(view: ProcessView | None) -> dict[StreamKey, values.StreamStats]:
    return {key(stream): stream.stats for stream in view.streams} if view else {}


def stream_rates(
    before: ProcessView | None, now: ProcessView
) -> dict[StreamKey, StreamRates]:
    """Return each stream's rates, since its start where no earlier reading has it."""
    old, dt = streams_of(before), seconds(before, now)
    rates = {}
    for which, s in streams_of(now).items():
        past = old.get(which)
        launches, retired = (since(s, past, n) / dt for n in ("submitted", "retired"))
        times = (since(s, past, f"{n}_ns") for n in ("busy", "idle", "starved", "held"))
        shares = (min(1.0, ns / 1e9 / dt) for ns in times)
        rates[which] = StreamRates(launches, retired, *shares)
    return rates


def core_waits(before: ProcessView | None, now: ProcessView) -> float:
    """Return the most that a launcher waited for a core, as a share of the time."""
    old = {key(s): s.core_wait_ns or 0 for s in before.streams} if before else {}
    gained = [(s.core_wait_ns or 0) - old.get(key(s), 0) for s in now.streams]
    return min(1.0, max(gained, default=0) / 1e9 / seconds(before, now))


def wait_ns(before: ProcessView | None, now: ProcessView) -> dict[str, int]:
    """Return how long host threads have waited, all together, by reason."""
    found: dict[str, int] = {}
    for view, sign in ((now, 1), (before, -1)):
        for device in view.devices if view else ():
            for reason, ns in device.wait_ns.items():
                found[reason] = found.get(reason, 0) + sign * ns
        full = sum(stream.full_wait_ns for stream in streams_of(view).values())
        found["full_queue"] = found.get("full_queue", 0) + sign * full
    return {reason: max(0, ns) for reason, ns in found.items()}


def sync_rates(before: ProcessView | None, now: ProcessView) -> dict[str, float]:
    """Return how many host threads waited on average, by reason."""
    dt = seconds(before, now)
    return {reason: ns / 1e9 / dt for reason, ns in wait_ns(before, now).items()}


def late_waits(
    before: Reading | None, now: Reading
) -> list[tuple[values.SiteWaits, int]]:
    """Return the lines where the host waits and the nanoseconds since `before`.

    Those that cost most lately come first. A wait that has just ended is missing
    until it is added to its line.
    """
    old = {site.at: site for site in before.lines} if before else {}
    found = [(site, since(site, old.get(site.at), "wait_ns")) for site in now.lines]
    return sorted(found, key=lambda each: (each[1], each[0].wait_ns), reverse=True)
