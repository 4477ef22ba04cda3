"""What a process's queues did and what held it up, as figures and as a table."""

from __future__ import annotations

import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

from npu_dispatch.drawing import Table, console, print_table
from npu_dispatch.observe.judge.rates import Reading, since, streams_of, wait_ns
from npu_dispatch.observe.judge.verdict import Verdict, judge
from npu_dispatch.observe.segment.layout import SAMPLE_PERIOD
from npu_dispatch.observe.segment.listing import Processes, ProcessView
from npu_dispatch.observe.segment.values import Histogram, SiteTasks, SiteWaits
from npu_dispatch.words import counted, duration, mib, short

Figures = dict[str, Any]  # plain values, as JSON has them

_MOST_LINES = 3
_LEAST_SHARE = 0.01
_LEAST_MS = 0.05
# The first steps compile, capture, allocate, and fill caches.
_WARM_UP = 8
_REMEMBERED = 1024


class Steps:
    """Steps of one optimizer, the one that stepped first of those that still live.

    `read` returns the process's counters. It is called after the eighth step and
    then whenever the number of steps is a power of two, so `first` and `last` are the
    ends of a span that lies inside of the training and has about half of its steps.
    """

    def __init__(self, read: Callable[[], ProcessView | None]) -> None:
        self.count = 0
        self.first: ProcessView | None = None
        self.last: ProcessView | None = None
        self._read = read
        self._between = 0  # steps from `first` to `last`
        self._times: deque[int] = deque(maxlen=_REMEMBERED)
        self._at = 0
        # Weak: what an optimizer holds is the program's memory.
        self._optimizer: weakref.ref[Any] | None = None

    def stepped(self, optimizer: Any, *_: object) -> None:
        """Count a step; a hook of torch.optim, called after optimizer.step()."""
        known = self._optimizer() if self._optimizer else None
        if known is None:
            self._optimizer = weakref.ref(optimizer)
            self._at = 0
        elif known is not optimizer:
            return
        now = time.monotonic_ns()
        if self._at:
            self._times.append(now - self._at)
        self.count += 1
        if self.count == _WARM_UP:
            self.first = self._read()
        elif self.count > _WARM_UP and self.count.bit_count() == 1:
            self.last = self._read()
            self._between = self.count - _WARM_UP
        # Without what the readings take.
        self._at = time.monotonic_ns()

    @property
    def host_s(self) -> float | None:
        """The median time from one step's end to the next one's; None: unknown."""
        steady = list(self._times)[_WARM_UP - 1 :] or self._times
        return median(steady) / 1e9 if steady else None

    @property
    def device_s(self) -> float | None:
        """How long the busiest stream works in a step; None where it is unknown."""
        if self.first is None or self.last is None:
            return None
        old, new = streams_of(self.first), streams_of(self.last)
        busy = [since(new[which], old.get(which), "busy_ns") for which in new]
        return max(busy, default=0) / 1e9 / self._between


class Watch:
    """This process's figures since its start, and the time since construction.

    If the caller calls `steps.stepped` after each step of an optimizer, the figures
    include the time of a step.
    """

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._processes = Processes(pid=os.getpid())
        self.steps = Steps(self._view)

    def _view(self) -> ProcessView | None:
        views = self._processes.refresh()
        return views[0] if views else None

    def figures(self) -> Figures | None:
        """Return what the program did, or None when it publishes no statistics.

        Waits and tasks are by line, the costliest first; of the tasks one in
        SAMPLE_PERIOD is counted, and `sampled` are all of those. A step's device time
        is that of the busiest stream, its host time that from one step's end to the
        next one's; None: not known. Memory is in bytes, by device.
        """
        elapsed = time.monotonic() - self._start
        with self._processes:
            view = self._view()
            if view is None:
                return None
            reader = view.reader
            waits = [site for site in reader.waits_by_site() if site.reason != "exit"]
            tasks, ops = reader.tasks_by_site(), reader.ops()
        streams = [stream.stats for stream in view.streams]
        depth = Histogram.total(s.depth_histogram for s in streams)
        latency = Histogram.total(s.latency_ns for s in streams)
        launches = sum(stream.submitted for stream in streams)  # inline ones too
        return {
            "seconds": elapsed,
            "launches": launches,
            "launches_per_s": launches / elapsed if elapsed else 0.0,
            "failed": sum(stream.failed for stream in streams),
            "dropped": sum(stream.dropped for stream in streams),
            "streams": len(streams),
            "depth_p50": depth.percentile(0.50),
            "depth_p99": depth.percentile(0.99),
            "depth_max": depth.percentile(1.0),
            "latency_us_p50": latency.percentile(0.50) / 1e3,
            "latency_us_p99": latency.percentile(0.99) / 1e3,
            "blocked_ms": {why: ns / 1e6 for why, ns in wait_ns(None, view).items()},
            "peak_memory": {d.device: d.allocated_peak for d in view.devices},
            "verdict": self._judge(Reading(view, waits, ops))._asdict(),
            "steps": self.steps.count,
            "step_s": self.steps.host_s,
            "step_device_s": self.steps.device_s,
            "waits": [site._asdict() for site in waits[:_MOST_LINES]],
            "tasks": [site._asdict() for site in tasks[:_MOST_LINES]],
            "sampled": sum(site.tasks for site in tasks),
        }

    def _judge(self, end: Reading) -> Verdict:
        """Judge the steps, or the whole run where there are few or it has failed."""
        first, last = self.steps.first, self.steps.last
        ended = end.view._replace(quiet_since=None)  # as the program has
        verdict = judge(None, end._replace(view=ended))
        if verdict.kind in ("failed", "hung", "idle") or first is None or last is None:
            return verdict
        return judge(Reading(first), end._replace(view=last))


def show(figures: Figures | None) -> None:
    """Print the table, the verdict and what to try next to stderr."""
    screen = console(stderr=True)
    if figures is None:
        screen.print(
            "npu: this process published no statistics: it has not used npu, or has "
            "no room for them (npu-dispatch doctor)"
        )
        return
    print_table(screen, Table("npu", (), list(_table_rows(figures))))
    for line in _verdict_lines(figures):
        screen.print(line, highlight=False, soft_wrap=True)


def _table_rows(found: Figures) -> Iterator[tuple[str, str]]:
    blocked = found["blocked_ms"]
    yield "launches", f"{found['launches']:,}"
    yield "launches/s", f"{found['launches_per_s']:,.0f}"
    if found["failed"]:
        yield "failed", f"{found['failed']} (then {found['dropped']} dropped)"
    depths = (f"{found[f'depth_{name}']:,.0f}" for name in ("p50", "p99", "max"))
    yield "queue depth p50 / p99 / max", " / ".join(depths)
    latencies = (f"{found[f'latency_us_{name}']:,.1f}" for name in ("p50", "p99"))
    yield "enqueue to retire p50 / p99", f"{' / '.join(latencies)} µs"
    total, whole = duration(sum(blocked.values()) / 1e3), duration(found["seconds"])
    yield "host blocked", f"{total} of {whole}"
    for reason, ms in sorted(blocked.items(), key=lambda item: -item[1]):
        if ms >= _LEAST_MS:
            yield f"  {reason.replace('_', ' ')}", duration(ms / 1e3)
    for device, peak in found["peak_memory"].items():
        yield f"peak memory npu:{device}", mib(peak)


def _each(count: int, steps: int, about: str = "") -> str:
    return f", {about}{count / steps:,.0f} a step" if 2 * count >= steps > 0 else ""


def _verdict_lines(found: Figures) -> Iterator[str]:
    yield found["verdict"]["text"]
    steps = 0
    if found["step_s"] is not None:
        steps = found["steps"]
        line = f"step     {duration(found['step_s'])} on the host (median)"
        if found["step_device_s"] is not None:
            line += f", {duration(found['step_device_s'])} of work on the device"
        yield f"{line} ({counted(steps, 'step')})"
    for waits in map(SiteWaits._make, map(dict.values, found["waits"])):
        if waits.wait_ns / 1e9 >= _LEAST_SHARE * found["seconds"]:
            each = _each(waits.waits, steps)
            yield (
                f"waits    {duration(waits.wait_ns / 1e9)} in "
                f"{counted(waits.waits, 'wait')} for {waits.reason.replace('_', ' ')}"
                f"{each}, at {short(waits.at)}"
            )
    # The lines that launch are not those that take a host-bound program's time.
    launching = [] if found["verdict"]["kind"] == "host-bound" else found["tasks"]
    for tasks in map(SiteTasks._make, map(dict.values, launching)):
        share = tasks.tasks / found["sampled"]
        if share >= _LEAST_SHARE:
            each = _each(tasks.tasks * SAMPLE_PERIOD, steps, "about ")
            yield (
                f"launches about {share:.0%} of all ({tasks.tasks:,} of "
                f"{found['sampled']:,} sampled){each}, at {short(tasks.at)}"
            )
    if advice := found["verdict"]["action"]:
        # The process has ended.
        yield f"try      {advice.replace(f'--pid {os.getpid()}', '-- python SCRIPT')}"
