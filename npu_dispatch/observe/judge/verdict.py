"""What holds a process up, where, and what to do: judged from two readings.

This is the one place that judges. `ps`, `top`, `run`, the page and the metrics ask
it, so that all say the same of the same process. docs/slow_step.md and
troubleshooting.md have more about what to do.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from npu_dispatch.observe.judge import rates
from npu_dispatch.observe.segment.listing import ProcessView, StreamView
from npu_dispatch.observe.segment.values import OpCost, SiteWaits, StreamStats
from npu_dispatch.words import age, counted, short, stream_title

HANG_SECONDS = 10.0
_DEVICE_BOUND = 0.8  # a stream has work for this share of the time
_BLOCKED = 0.25  # host waits for this share of the time
# A pause between two steps: the process is judged by all that it has done.
_PAUSE_S = 2.0
# A launcher that was ready to run had no core for this share of the time.
_CROWDED = 0.25
_OF_SPEED = ("blocked", "held", "device-bound", "launch-bound", "host-bound")
_WAITING = 0.5  # collectives wait for other ranks for this share of the time
# The host is elsewhere if the device stands idle for this share of the time in gaps
# of more than a millisecond, and so few launches come in a second.
_AWAY, _FEW_LAUNCHES = 0.5, 5000
# What a stream runs that waits for torch_npu's ExternalEvent.
_UNRECORDED = "external event wait"

# Every kind, and its rank in the order in which processes are shown: 0 needs attention
# first. Whether the host or the device is short may change every second, and rows
# should not move because of that.
KINDS = {
    "stopped": 0,
    "hung": 0,
    "failed": 1,
    **dict.fromkeys(("blocked", "waiting", "held"), 2),
    **dict.fromkeys(("device-bound", "launch-bound", "host-bound", "quiet"), 3),
    "idle": 4,
}
# By the reason of the wait.
_INSTEAD = {
    "item": "keep the value on the device and read it once in a hundred steps",
    "copy": "copy with non_blocking=True into pinned memory, and read it a step later",
    "h2d": 'use DataLoader(pin_memory=True) and .to("npu", non_blocking=True)',
    "operator": "use an operator whose result has a fixed shape, such as torch.where "
    "instead of a boolean index",
    "stream_sync": "let streams wait for each other with wait_stream() instead",
    "event_sync": "let the other stream wait for the event instead",
    "device_sync": "call synchronize() only where the program measures time",
    "allocator": "use less memory: the allocator waits for blocks to come free",
    "full_queue": "launch less at once: the queue is full, so the device is behind",
}
_FREE_CORES = (
    "stop the other programs, or limit them to other cores (taskset -cp CORES "
    "THEIR_PID)"
)
_WHOLE_STEP = "npu_dispatch.compile_step(model, optimizer, loss_fn)"
_ACTIONS = {
    "stopped": "let it go on: kill -CONT {pid}, or continue in the debugger",
    "hung": "npu-dispatch dump {pid} shows every stream and who waits for whom; "
    "docs/troubleshooting.md says how to read it",
    "unrecorded": "record the event that this line waits for: event.record(stream), on "
    "the stream whose work it waits for; npu-dispatch dump {pid} shows every stream",
    "hung rank": "npu-dispatch dump --all-ranks says which rank holds up the job, and "
    "why; npu-dispatch dump {pid} shows this one's streams",
    "failed": "fix the operator's arguments at this line; the stream drops its work "
    "until torch.npu.clear_error(stream)",
    "waiting": "this rank is early: npu-dispatch dump --all-ranks names the one that "
    "comes last, and where its Python is",
    "held": "let the streams overlap: record the event as early as possible, and wait "
    "for it as late as possible",
    "host-bound": "look outside of npu: Python does other work than launching, such as "
    "loading data (py-spy record -o where.svg --pid {pid})",
    "idle": 'move the model and its inputs to the device, model.to("npu"), or run with '
    "--cuda if the program names cuda",
}
# Kernels whose time no compiler changes, and a product that is worth another dtype.
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "convolution", "mkldnn_rnn_layer")
_LARGE_NS = 100_000


class Verdict(NamedTuple):
    """`kind`: one of KINDS. `text` is a sentence that begins with it."""

    kind: str
    text: str
    at: str = ""  # the Python line to look at; "" when not known
    action: str = ""  # what to do; "" where nothing is wrong


def attention(kind: str) -> int:
    """Return the rank of a verdict's kind; 0 needs attention first."""
    return KINDS[kind]


def waits_for(view: ProcessView) -> dict[rates.StreamKey, rates.StreamKey]:
    """Return which stream each held stream waits for."""
    return {
        rates.key(s): s.stats.held_by
        for s in view.streams
        if s.stats.held_by is not None
    }


def cycles(
    edges: Mapping[rates.StreamKey, rates.StreamKey],
) -> Iterator[list[rates.StreamKey]]:
    """Yield each circle of streams that wait for one another, once."""
    done: set[rates.StreamKey] = set()
    for start in edges:
        path: list[rates.StreamKey] = []
        at: rates.StreamKey | None = start
        while at is not None and at not in done:
            done.add(at)
            path.append(at)
            at = edges.get(at)
        if at in path:
            yield path[path.index(at) :]


def _count(rate: float) -> str:
    return f"{rate / 1e3:,.0f} k/s" if rate >= 1e3 else f"{rate:,.0f}/s"


def doing(s: StreamStats) -> str:
    """Say what a stream does: "runs aten::mm"."""
    if s.state == "failed":
        text = f"{counted(s.failed, 'task')} failed, {s.dropped} dropped after it"
        at = f", launched at {s.failure_at}" if s.failure_at else ""
        return f"{text}: {s.failure}{at}" if s.failure else text
    if not s.depth and s.held_by is None:
        return f"idle after {counted(s.retired, 'task')}"
    if s.held_by is not None:
        return f"waits for task {s.held_until:,} of {stream_title(*s.held_by)}"
    if s.running == _UNRECORDED:
        return "waits for an event nobody has recorded"
    return f"runs {s.running}" if s.running else "has not begun"


def quiet_for(view: ProcessView) -> str:
    """Say since when a process launches nothing, and what it launched last."""
    elapsed = age(view.tick - (view.quiet_since or view.tick))
    text = f"nothing launched for {elapsed}, nothing queued"
    if view.last_task and view.last_task.at:
        text += f", last {view.last_task.op} at {short(view.last_task.at)}"
    return text


def ask_python(view: ProcessView) -> str:
    """Say how to see what a process's Python does that is not known here."""
    return f"Python is elsewhere: py-spy dump --subprocesses --pid {view.info.pid}"


def stuck_for(view: ProcessView, stream: StreamView) -> float:
    """Return for how many seconds a stream has made no progress; 0: it has no work."""
    return 0.0 if stream.oldest_since is None else view.tick - stream.oldest_since


def _waits_at(view: ProcessView) -> str:
    """Return where the host thread is that waits longest."""
    return next((wait.at for wait in view.host_waits if wait.at), "")


def _hung(view: ProcessView, least: float) -> tuple[str, str] | None:
    """Return a sentence and the culprit's line, or None where all streams move."""
    # Rates cannot tell this, as there are none at the first reading.
    stuck = [
        s
        for s in view.streams
        if s.oldest_since is not None and stuck_for(view, s) >= least
    ]
    if not stuck:
        return None
    waits = _waits_at(view)
    host = f"; the host waits at {short(waits)}" if waits else ""
    for circle in cycles(waits_for(view)):
        names = " -> ".join(stream_title(*s) for s in [*circle, circle[0]])
        lines = [s.stats.running_at for s in view.streams if rates.key(s) in circle]
        at = next(filter(None, lines), waits)
        return f"streams wait in a circle: {names}{host}", at
    # A held stream is not the cause; the one that it waits for is.
    worst = max(stuck, key=lambda s: (s.stats.held_by is None, stuck_for(view, s)))
    text = (
        f"{stream_title(*rates.key(worst))} {doing(worst.stats)}, no progress for "
        f"{age(stuck_for(view, worst))}, "
        f"{counted(worst.stats.depth, 'task')} queued{host}"
    )
    return text, worst.stats.running_at or waits


def _unrecorded(view: ProcessView) -> StreamStats | None:
    """Return a stream that waits for an event which no stream has been given."""
    all_of_them = (s.stats for s in view.streams)
    return next((s for s in all_of_them if s.depth and s.running == _UNRECORDED), None)


def _held(
    view: ProcessView, by_stream: Mapping[rates.StreamKey, rates.StreamRates]
) -> str:
    stream, worst = max(by_stream.items(), key=lambda item: item[1].held)
    title = stream_title(*stream)
    if missing := _unrecorded(view):
        return f"{stream_title(missing.device, missing.stream)} {doing(missing)}"
    text = f"{title} waits for other streams {worst.held:.0%} of the time"
    by = waits_for(view).get(stream)
    return text + (f", now for {stream_title(*by)}" if by else "")


def _kind(
    before: ProcessView | None,
    now: ProcessView,
    least: float,
    late: Sequence[tuple[SiteWaits, int]],
) -> tuple[str, str, str]:
    """Return the kind, the reason for it and the line."""
    if now.stopped:
        queued = sum(stream.stats.depth for stream in now.streams)
        text = f"by a signal or a debugger, {counted(queued, 'task')} queued"
        return "stopped", text, ""
    if hung := _hung(now, least):
        return "hung", *hung
    for stream in now.streams:
        if stream.state == "error":
            text = f"{stream_title(*rates.key(stream))}: {doing(stream.stats)}"
            return "failed", text, stream.stats.failure_at
    if now.quiet_since is not None and now.tick - now.quiet_since >= least:
        last = now.last_task.at if now.last_task else ""
        return "quiet", f"{quiet_for(now)}; {ask_python(now)}", last
    by_stream = rates.stream_rates(before, now)
    launches = sum(rate.launches for rate in by_stream.values())
    if not launches and not any(stream.stats.depth for stream in now.streams):
        paused = now.tick - (now.quiet_since or 0.0)
        if before is not None and paused < _PAUSE_S:
            return _kind(None, now, least, late)
        return "idle", "nothing launched, nothing queued", ""
    waited = rates.since(now, before, "waited_ns")
    share = min(1.0, waited / 1e9 / rates.seconds(before, now))
    if share >= _WAITING:
        text = f"collectives wait for other ranks {share:.0%} of the time"
        return "waiting", text, _waits_at(now)
    host = f"host launches {_count(launches)}"
    main = max(by_stream.values(), key=lambda rate: rate.busy)
    total = min(1.0, sum(rate.busy for rate in by_stream.values()))
    if main.busy + main.held >= _DEVICE_BOUND:
        # The host is ahead: the stream has work all the time.
        busy = main.busy if main.busy >= _DEVICE_BOUND else total
        if busy >= _DEVICE_BOUND or main.busy >= main.held:
            text = f"device busy {busy:.0%}, {host}"
            return "device-bound", text, ""
        missing = _unrecorded(now)
        at = missing.running_at if missing else _waits_at(now)
        return "held", _held(now, by_stream), at
    syncs = rates.sync_rates(before, now)
    reason, worst = max(syncs.items(), key=lambda item: item[1])
    if sum(syncs.values()) >= _BLOCKED:
        text = (
            f"host waits {sum(syncs.values()):.0%} of the time, most for "
            f"{reason.replace('_', ' ')} ({worst:.0%}); device idle {1 - main.busy:.0%}"
        )
        if late and late[0][1]:
            at = late[0][0].at
            return "blocked", f"{text}; most at {short(at)}", at
        return "blocked", text, _waits_at(now)
    away = main.idle - main.starved  # a gap counts as starved for its first ms
    is_away = away >= _AWAY and launches < _FEW_LAUNCHES
    kind = "host-bound" if is_away else "launch-bound"
    return kind, f"device idle {1 - main.busy:.0%}, {host}", ""


def judge(
    earlier: rates.Reading | None,
    reading: rates.Reading,
    *,
    hang_seconds: float = HANG_SECONDS,
) -> Verdict:
    """Return what holds a process up, since `earlier`, by default since its start."""
    before, now = earlier and earlier.view, reading.view
    late = rates.late_waits(earlier, reading)
    kind, text, at = _kind(before, now, hang_seconds, late)
    reason = next((site.reason for site, _ in late if site.at == at), "")
    lacks_record = kind in ("hung", "held") and _unrecorded(now)
    topic = "unrecorded" if lacks_record else kind
    what = advice(topic, now, at=at, reason=reason, ops=reading.ops)
    share = rates.core_waits(before, now)
    if kind in _OF_SPEED and share >= _CROWDED:
        text += (
            f"; other programs keep its launcher from a core {share:.0%} of the time"
        )
        what = f"{what}; {_FREE_CORES}" if what else _FREE_CORES
    return Verdict(kind, f"{kind}: {text}", at, what)


def _name(op: OpCost) -> str:
    return op.op.removeprefix("aten::").split(".")[0].removesuffix("_backward")


@functools.cache
def _computes_bf16() -> bool:
    """Return whether this machine's cores multiply numbers of bfloat16."""
    try:
        flags = Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return False
    return bool({"avx512_bf16", "amx_bf16", "bf16"}.intersection(flags))


def _about_speed(kind: str, view: ProcessView, ops: Sequence[OpCost]) -> str:
    """Return what makes a process faster that is bound by its launches or kernels."""
    steps = view.process.optimizer_steps
    replays = sum(device.graph_replays for device in view.devices)
    captured = replays > 0 and steps < 2 * replays  # steps are replays of a graph
    compiled = any(op.op.startswith("npu_fused") for op in ops)
    refused = not captured and any(
        sum(device.graph_capture_failures.values()) for device in view.devices
    )
    if kind == "launch-bound":
        if captured:
            return _ACTIONS["host-bound"]
        if refused:
            return "fix what kept a graph from being captured: a warning names it"
        if steps:
            return f"launch a whole step at once: {_WHOLE_STEP}"
        how = 'torch.compile(model, mode="reduce-overhead")'
        if not compiled:
            how = f"torch.npu.graph, or {how}"
        return f"launch many operators at once: {how}"
    total = sum(op.ns for op in ops)
    products = [op for op in ops if _name(op) in _PRODUCTS]
    mostly_products = 2 * sum(op.ns for op in products) > total > 0
    large = any(op.ns > _LARGE_NS * op.tasks for op in products)
    costliest = ", ".join(f"{op.op} {op.ns / total:.0%}" for op in ops[:3] if total)
    spent = f" ({costliest})" if costliest else ""
    if not (captured or compiled or refused):
        how = _WHOLE_STEP if steps else "torch.compile(model)"
        return f"make the kernels fewer and cheaper{spent}: {how}"
    if mostly_products and large and _computes_bf16():
        return f'multiply in half precision{spent}: torch.autocast("npu")'
    return f"the kernels take the time{spent}: use more cores or a smaller model"


def advice(
    kind: str,
    view: ProcessView,
    *,
    at: str = "",
    reason: str = "",
    ops: Sequence[OpCost] = (),
) -> str:
    """Return a sentence that says what to do, or "" where nothing is wrong.

    `kind` is a verdict's, or "unrecorded". `at` and `reason`: where and why the host
    waits most. `ops` are the costliest first.
    """
    if kind == "blocked":
        instead = _INSTEAD.get(reason, "wait less often")
        return f"at {short(at)}, {instead}" if at else instead
    if kind in ("launch-bound", "device-bound"):
        return _about_speed(kind, view, ops).format(pid=view.info.pid)
    if kind == "hung" and view.rank:
        kind = "hung rank"
    return _ACTIONS.get(kind, "").format(pid=view.info.pid)
