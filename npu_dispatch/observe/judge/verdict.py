"""What holds a process up, where, and what to do: judged from two readings.

This is the one place that judges. `ps`, `top`, `run`, the page and the metrics ask
it, so that all say the same of the same process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from npu_dispatch.observe.judge.action import action
from npu_dispatch.observe.judge.rates import (
    StreamKey,
    StreamRates,
    key,
    seconds,
    stream_rates,
    sync_rates,
)
from npu_dispatch.observe.segment import OpCost, SiteWaits
from npu_dispatch.observe.segment.listing import ProcessView, StreamView
from npu_dispatch.observe.segment.sites import short
from npu_dispatch.stream_names import stream_title

__all__ = [
    "HANG_SECONDS",
    "KINDS",
    "Verdict",
    "ask_python",
    "attention",
    "cycles",
    "doing",
    "judge",
    "late_waits",
    "quiet_for",
]

HANG_SECONDS = 10.0
_DEVICE_BOUND = 0.8  # a stream has work for this share of the time
_BLOCKED = 0.25  # host waits for this share of the time
# A pause between two steps: the process is judged by all that it has done.
_PAUSE_S = 2.0
_WAITING = 0.5  # collectives wait for other ranks for this share of the time
# The host is elsewhere if the device stands idle for this share of the time in gaps
# of more than a millisecond, and so few launches come in a second.
_AWAY, _FEW_LAUNCHES = 0.5, 5000
# What a stream runs that waits for torch_npu's ExternalEvent.
_UNRECORDED = "external event wait"

# Every kind, those first that need somebody's attention first.
KINDS = (
    *("stopped", "hung", "failed", "blocked", "waiting", "held"),
    *("device-bound", "launch-bound", "host-bound", "quiet", "idle"),
)
# The order in which processes are shown. Whether the host or the device is short
# may change every second, and rows should not move because of that.
_ATTENTION = {
    "stopped": 0,
    "hung": 0,
    "failed": 1,
    "blocked": 2,
    "waiting": 2,
    "held": 2,
    "idle": 4,
}


class Verdict(NamedTuple):
    """`kind`: one of KINDS. `text` is a sentence that begins with it."""

    kind: str
    text: str
    at: str = ""  # the Python line to look at; "" when not known
    action: str = ""  # what to do; "" where nothing is wrong


def attention(kind: str) -> int:
    """Return the rank of a verdict's kind; 0 needs attention first."""
    return _ATTENTION.get(kind, 3)


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


def _count(rate: float) -> str:
    return f"{rate / 1e3:,.0f} k/s" if rate >= 1e3 else f"{rate:,.0f}/s"


def doing(stream: StreamView) -> str:
    """Say what a stream with work does: "runs aten::mm"."""
    s = stream.stats
    if s.held_by is not None:
        return f"waits for task {s.held_until:,} of {stream_title(*s.held_by)}"
    if s.running == _UNRECORDED:
        return "waits for an event nobody has recorded"
    return f"runs {s.running or 'a task'}"


def quiet_for(view: ProcessView) -> str:
    """Say since when a process launches nothing, and what it launched last."""
    elapsed = view.tick - (view.quiet_since or view.tick)
    text = f"nothing launched for {elapsed:,.0f} s, nothing queued"
    if view.last_task and view.last_task.at:
        text += f", last {view.last_task.op} at {short(view.last_task.at)}"
    return text


def ask_python(view: ProcessView) -> str:
    """Say how to see what a process's Python does that is not known here."""
    return f"Python is elsewhere: py-spy dump --subprocesses --pid {view.info.pid}"


def late_waits(
    before: Sequence[SiteWaits], now: Sequence[SiteWaits]
) -> list[tuple[SiteWaits, int]]:
    """Return the lines where the host waits and the nanoseconds since `before`.

    Those that cost most lately come first. A wait that has just ended is missing
    until it is added to its line.
    """
    old = {site.at: site.wait_ns for site in before}
    found = [(site, max(0, site.wait_ns - old.get(site.at, 0))) for site in now]
    return sorted(found, key=lambda each: (each[1], each[0].wait_ns), reverse=True)


def _waits_at(view: ProcessView) -> str:
    """Return where the host thread is that waits longest."""
    return next((wait.at for wait in view.host_waits if wait.at), "")


def _hung(view: ProcessView, least: float) -> tuple[str, str] | None:
    """Return a sentence and the culprit's line, or None where all streams move."""
    # Rates cannot tell this, as there are none at the first reading.
    stuck = [
        s
        for s in view.streams
        if s.oldest_since is not None and view.tick - s.oldest_since >= least
    ]
    if not stuck:
        return None
    waits = _waits_at(view)
    host = f"; the host waits at {short(waits)}" if waits else ""
    for circle in cycles(waits_for(view)):
        names = " -> ".join(stream_title(*s) for s in [*circle, circle[0]])
        lines = [s.stats.running_at for s in view.streams if key(s) in circle]
        at = next(filter(None, lines), waits)
        return f"hung: streams wait in a circle: {names}{host}", at
    # A held stream is not the cause; the one that it waits for is.
    worst = min(
        stuck, key=lambda s: (s.stats.held_by is not None, s.oldest_since or 0.0)
    )
    age = view.tick - (worst.oldest_since or view.tick)
    text = (
        f"hung: {stream_title(*key(worst))} {doing(worst)}, "
        f"no progress for {age:,.0f} s, {worst.stats.depth:,} tasks queued{host}"
    )
    return text, worst.stats.running_at or waits


def _held(view: ProcessView, rates: Mapping[StreamKey, StreamRates]) -> str:
    stream, worst = max(rates.items(), key=lambda item: item[1].held)
    title = stream_title(*stream)
    text = f"held: {title} waits for other streams {worst.held:.0%} of the time"
    by = waits_for(view).get(stream)
    return text + (f", now for {stream_title(*by)}" if by else "")


def _kind(
    before: ProcessView | None,
    now: ProcessView,
    least: float,
    late: Sequence[tuple[SiteWaits, int]],
) -> tuple[str, str, str]:
    """Return the kind, the sentence and the line."""
    if now.stopped:
        queued = sum(stream.stats.depth for stream in now.streams)
        text = f"stopped: by a signal or a debugger, {queued:,} tasks queued"
        return "stopped", text, ""
    if hung := _hung(now, least):
        return "hung", *hung
    for stream in now.streams:
        if stream.state == "error":
            s = stream.stats
            text = f"{s.failed} failed, {s.dropped} dropped after it"
            return (
                "failed",
                f"failed: {stream_title(*key(stream))}: {text}",
                s.running_at,
            )
    if now.quiet_since is not None and now.tick - now.quiet_since >= least:
        last = now.last_task.at if now.last_task else ""
        return "quiet", f"quiet: {quiet_for(now)}; {ask_python(now)}", last
    rates = stream_rates(before, now)
    launches = sum(rate.launches for rate in rates.values())
    if not launches and not any(stream.stats.depth for stream in now.streams):
        since = now.tick - (now.quiet_since or 0.0)
        if before is not None and since < _PAUSE_S:
            return _kind(None, now, least, late)
        return "idle", "idle: nothing launched, nothing queued", ""
    waited = now.waited_ns - (before.waited_ns if before else 0)
    share = min(1.0, waited / 1e9 / seconds(before, now))
    if share >= _WAITING:
        text = f"waiting: collectives wait for other ranks {share:.0%} of the time"
        return "waiting", text, _waits_at(now)
    host = f"host launches {_count(launches)}"
    main = max(rates.values(), key=lambda rate: rate.busy)
    total = min(1.0, sum(rate.busy for rate in rates.values()))
    if main.busy + main.held >= _DEVICE_BOUND:
        # The host is ahead: the stream has work all the time.
        busy = main.busy if main.busy >= _DEVICE_BOUND else total
        if busy >= _DEVICE_BOUND or main.busy >= main.held:
            text = f"device-bound: device busy {busy:.0%}, {host}"
            return "device-bound", text, ""
        return "held", _held(now, rates), _waits_at(now)
    syncs = sync_rates(before, now)
    reason, worst = max(syncs.items(), key=lambda item: item[1])
    if sum(syncs.values()) >= _BLOCKED:
        text = (
            f"blocked: host waits {sum(syncs.values()):.0%} of the time, most for "
            f"{reason.replace('_', ' ')} ({worst:.0%}); device idle {1 - main.busy:.0%}"
        )
        if late and late[0][1]:
            at = late[0][0].at
            return "blocked", f"{text}; most at {short(at)}", at
        return "blocked", text, _waits_at(now)
    away = main.idle - main.starved  # a gap counts as starved for its first ms
    kind = "host-bound" if away >= _AWAY and launches < _FEW_LAUNCHES else ""
    kind = kind or "launch-bound"
    return kind, f"{kind}: device idle {1 - main.busy:.0%}, {host}", ""


def judge(
    before: ProcessView | None,
    now: ProcessView,
    *,
    hang_seconds: float = HANG_SECONDS,
    lines_before: Sequence[SiteWaits] = (),
    lines: Sequence[SiteWaits] = (),
    ops: Sequence[OpCost] = (),
) -> Verdict:
    """Return what holds `now` up, since `before`, by default since its start.

    `lines` is what host waits cost by Python line, at the same two moments. `ops`
    are the operators, the costliest first.
    """
    late = late_waits(lines_before, lines)
    kind, text, at = _kind(before, now, hang_seconds, late)
    reason = next((site.reason for site, _ in late if site.at == at), "")
    return Verdict(kind, text, at, action(kind, now, at=at, reason=reason, ops=ops))
