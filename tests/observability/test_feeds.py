"""Every metric of the table moves when its cause happens in a living process."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from npu_dispatch.observe.serve.options import ServiceConfig
from npu_dispatch.observe.serve.scrapes import Scrapes
from npu_dispatch.observe.trace.trace_file import TraceFile, trace_path

# Stages, one a line of standard input; "held" has a stream that waits.
CAUSES = """
import asyncio, sys, threading, torch
from pathlib import Path
from npu_dispatch import _C
from npu_dispatch.observe.segment import StatsReader
npu = torch.npu
F = torch.nn.functional

class Held:
    # Holds stream `of` until release(): it waits for a task that is not there yet.
    def __init__(self, of, by):
        self.by = by
        by.synchronize()
        number = _C.stream_tail(by.device_index, by.stream_id) + 1
        _C.stream_wait(of.device_index, of.stream_id,
                       by.device_index, by.stream_id, number)
    def release(self):
        with npu.stream(self.by):
            torch.empty(1, device="npu").zero_()

def say(what):
    print(what, flush=True)
    return sys.stdin.readline().strip()

x, small = torch.ones(1 << 20, device="npu"), torch.ones(8, device="npu")
pinned = torch.ones(1 << 20, pin_memory=True)
s, t, u, bad = (npu.Stream() for _ in range(4))

# Copies of every kind, so many that some are sampled ones.
for _ in range(40):
    x.copy_(pinned, non_blocking=True)
npu.synchronize()
for _ in range(40):
    pinned.copy_(x, non_blocking=True)
npu.synchronize()
y = torch.empty_like(x)
for _ in range(40):
    y.copy_(x)
npu.synchronize()

# Waits of the host, by reason.
for _ in range(8):
    (x @ x).item()
big = torch.ones(1 << 22)
big.npu()
x.add_(1).cpu()
for _ in range(4):
    x.add_(1)
    (x > 0).nonzero()
    x.add_(1)
    e = npu.Event()
    e.record()
    e.synchronize()
    x.add_(1)
    npu.current_stream().synchronize()
    x.add_(1)
    npu.synchronize()
    x.add_(1)
    npu.current_stream().drained_handle()
kept = [npu.Event() for _ in range(3)]
for event in kept:
    event.record()

# Guards.
npu.set_sync_debug_mode("error")
try:
    x.sum().item()
except RuntimeError:
    pass
npu.set_sync_debug_mode(0)

# Past the queue.
with npu.stream(npu.SyncLaunchStream()):
    torch.ones(3, device="npu").add_(1)
with npu.launch_blocking():
    x.add_(1)

# Graphs: one that is captured and replayed on two streams, one that fails.
g = npu.NPUGraph()
side = npu.Stream()
with npu.graph(g):
    here = npu.current_stream()
    a = x + 1
    side.wait_stream(here)
    with npu.stream(side):
        b = a.exp() * a
    here.wait_stream(side)
    c = a + b
for _ in range(20):
    g.replay()
npu.synchronize()
try:
    with npu.graph(npu.NPUGraph()):
        x.sum().item()
except RuntimeError:
    pass

# Copies that another stream waits for, and that have begun by then.
big_pinned = torch.ones(1 << 24, pin_memory=True)
far = torch.empty(1 << 24, device="npu")
with StatsReader(Path(_C.segment_path())) as reader:
    # They may have ended by then, where this thread gets no core for a while.
    while not any(stream.held_ns_by.get("copy") for stream in reader.streams()):
        with npu.stream(s):
            far.copy_(big_pinned, non_blocking=True)
            first = s.record_event()
            for _ in range(12):  # longer than a thread that is ready has to wait
                far.copy_(big_pinned, non_blocking=True)
        first.synchronize()
        t.wait_stream(s)
        npu.synchronize()

# Memory.
try:
    torch.empty(1 << 50, device="npu")
except torch.OutOfMemoryError:
    pass

# asyncio: a wait that ended, and one that lasts.
async def awaited():
    for _ in range(3):
        x.add_(1)
        await npu.current_stream()
asyncio.run(awaited())

hold = Held(s, u)
late = npu.Event()
late.record(s)
async def last():
    await late
waiting = threading.Thread(target=lambda: asyncio.run(last()))
waiting.start()
shared = torch.ones(1 << 20, device="npu")
shared.record_stream(s)
del shared
def fill():
    with npu.stream(s):
        for _ in range(10_000):
            small.add_(1)
filling = threading.Thread(target=fill)
filling.start()
say("held")

hold.release()
filling.join()
waiting.join()
npu.synchronize()

g = npu.NPUGraph()
with npu.graph(g):
    z = x + 1
    say("capturing")
say("traced")
with npu.stream(t):
    while sys.stdin.readline().strip() != "enough":
        for _ in range(4000):
            small.add_(1)
        npu.synchronize()
        print("more", flush=True)

# A failure, and what is dropped behind it.
weight, index = torch.rand(4, 2).npu(), torch.tensor([9]).npu()
npu.synchronize()
hold = Held(bad, u)
with npu.stream(bad):
    F.embedding(index, weight)
    weight + 1
hold.release()
try:
    bad.synchronize()
except IndexError:
    pass
say("done")
"""

Key = tuple[str, tuple[tuple[str, str], ...]]


class Metrics:
    """What the exporter would say of a process, one scrape after the other."""

    def __init__(self, pid: int) -> None:
        self._scrapes = Scrapes(ServiceConfig(pid=pid, ops=3, per_stream=True))

    def read(self) -> Mapping[Key, Any]:
        found: dict[Key, Any] = {}
        for family in self._scrapes.families(exemplars=True):
            name = family.name.removeprefix("npu_dispatch_")
            for sample in family.samples:
                if not sample.name.endswith(("_bucket", "_sum")):
                    key = (name, tuple(sorted(sample.labels.items())))
                    found[key] = sample.value
        return found


def total(found: Mapping[Key, Any], name: str, **labels: str) -> float:
    """Return the sum over the labels that are not given."""
    rows = [
        value
        for (other, of), value in found.items()
        if other == name and labels.items() <= dict(of).items()
    ]
    assert rows, f"no {name} {labels}"
    return float(sum(rows))


def is_fed(found: Mapping[Key, Any], name: str, labels: dict[str, str]) -> bool:
    return any(
        value and other == name and labels.items() <= dict(of).items()
        for (other, of), value in found.items()
    )


# What has counted something at the end, under some labels or under each of these.
AFTERWARDS = """
any: tasks_enqueued enqueue_blocked enqueue_blocked_seconds launch_overhead_seconds
    launch_sampled_seconds queue_wait_seconds task_latency_seconds stream_busy_seconds
    stream_idle_starved_seconds queue_capacity last_completion_timestamp_seconds
    consumer_cpu_seconds consumer_heartbeat_timestamp_seconds stream_error_state
    events_created events_recorded events_pending memory_allocated_bytes
    memory_reserved_bytes memory_limit_bytes memory_alloc memory_oom graph_captures
    graph_replays async_wakeup_seconds trace_events_dropped snapshot_timestamp_seconds
tasks_completed: status=ok status=error status=cancelled
tasks_bypassed: reason=sync_launch_stream reason=launch_blocking reason=capture
    reason=nested
task_duration_seconds: kind=kernel kind=h2d kind=d2h kind=d2d
stream_wait_seconds: cause=event cause=barrier cause=copy
consumer_wakeups: how=park
host_sync: reason=item reason=d2h reason=h2d reason=operator reason=stream_sync
    reason=event_sync reason=device_sync reason=raw_handle
host_sync_seconds: reason=item
queue_drain: reason=device_sync
queue_drain_seconds: reason=device_sync
sync_violations: mode=error,reason=item
async_errors: code=index_error
copy_bytes: direction=h2d,pinned=true direction=h2d,pinned=false
    direction=d2h,pinned=true direction=d2h,pinned=false direction=d2d
graph_capture_failures: reason=sync
op_sampled_tasks: op=other
op_sampled_seconds: op=other
streams: state=idle state=error
"""
WHILE_HELD = """
any: queue_depth queue_depth_max stream_inflight_tasks
    oldest_task_enqueued_timestamp_seconds memory_deferred_free_bytes async_waiters
    enqueue_blocked_seconds
streams: state=blocked_on_event
"""


def missing(found: Mapping[Key, Any], wanted: str) -> list[str]:
    """Return what of these has counted nothing."""
    absent = []
    for line in re.sub(r"\n +", " ", wanted).strip().splitlines():
        name, _, words = line.partition(":")
        for word in words.split():
            each = (word, "") if name == "any" else (name, word)
            labels = dict(one.split("=") for one in each[1].split(",") if one)
            if not is_fed(found, each[0], labels):
                absent.append(" ".join(each))
    return absent


@pytest.fixture
def stages(trainer):
    """The metrics while a stream is held, while one captures, and at the end."""
    program = trainer(CAUSES)
    metrics = Metrics(program.pid)
    found = {}
    assert program.line() == "held"
    # Threads and launchers are on their way: this ends when all have got there.
    while True:
        found["held"] = metrics.read()
        if not missing(found["held"], WHILE_HELD):
            break
    program.say("on")
    assert program.line() == "capturing"
    found["capturing"] = metrics.read()
    program.say("on")
    assert program.line() == "traced"
    with TraceFile(trace_path(program.pid)) as trace:
        trace.follow()
        program.say("on")
        # A reader that has once read and then falls behind.
        for rounds in range(200):
            program.say("more")
            assert program.line() == "more"
            if rounds == 0:
                trace.read()
            if is_fed(metrics.read(), "trace_events_dropped", {}):
                break
        trace.leave()
    program.say("enough")
    assert program.line() == "done"
    found["done"] = metrics.read()
    return found


# With the sanitizer and little memory.
CHECKED = """
import sys, torch
npu = torch.npu
s = npu.Stream()
for _ in range(100):  # one call in sixteen is measured
    x = torch.ones(100, device="npu")
    with npu.stream(s):
        x.add_(1)
    npu.synchronize()
# The second does not fit beside the first, which is free but kept.
for mib in (40, 48):
    torch.empty(mib << 20, dtype=torch.uint8, device="npu")
print("done", flush=True)
sys.stdin.readline()
"""


def test_the_sanitizer_and_a_full_memory_are_seen(trainer):
    program = trainer(CHECKED, TORCH_NPU_SANITIZER="report", NPU_DISPATCH_MEMORY="64M")
    assert program.line() == "done"
    found = Metrics(program.pid).read()

    assert total(found, "sanitizer_enabled") == 1
    assert total(found, "sanitizer_reports", kind="race_ww") >= 1
    assert total(found, "sanitizer_tracked_bytes") > 0
    assert total(found, "sanitizer_overhead_seconds") > 0
    assert total(found, "memory_alloc_retries") >= 1


def test_each_row_of_the_table_is_fed_by_its_cause(stages):
    assert missing(stages["done"], AFTERWARDS) == []
    assert total(stages["capturing"], "streams", state="capturing") == 1
    # What ended is no longer there.
    assert total(stages["done"], "async_waiters") == 0
    assert not is_fed(stages["done"], "memory_deferred_free_bytes", {})
    assert total(stages["done"], "queue_depth") == 0
    # Three events that nobody asked after.
    assert total(stages["done"], "events_pending") >= 3
