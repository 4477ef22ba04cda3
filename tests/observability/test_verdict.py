"""The verdict: what holds a process up, told from two readings of its counters."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from subprocess import PIPE

import pytest
from starlette.testclient import TestClient

from npu_dispatch.observe.judge.describe import dump_lines
from npu_dispatch.observe.judge.rates import Reading, sync_rates
from npu_dispatch.observe.judge.top import Sampler
from npu_dispatch.observe.judge.verdict import (
    KINDS,
    Verdict,
    attention,
    judge as judged,
)
from npu_dispatch.observe.segment.layout import WAIT_REASONS
from npu_dispatch.observe.segment.listing import Processes, ProcessView
from npu_dispatch.observe.segment.values import RecentTask, SiteWaits
from npu_dispatch.observe.serve.app import ServiceConfig, create_app
from npu_dispatch.observe.serve.scrapes import Scrapes
from npu_dispatch.observe.serve.snapshot import process_values

SECOND = 10**9


@pytest.fixture
def views(write_segment, ghost):
    """Two readings of some streams, a second apart, with what changed between."""

    def make(*streams: dict[str, int]) -> tuple[ProcessView, ProcessView]:
        folder = write_segment(ghost, {}, streams=len(streams))
        with Processes(directory=folder) as processes:
            [before] = processes.refresh()
        later = tuple(
            stream._replace(stats=stream.stats._replace(alive_ns=SECOND, **changes))
            for stream, changes in zip(before.streams, streams, strict=True)
        )
        return before, before._replace(tick=before.tick + 1, streams=later)

    return make


def judge(
    before: ProcessView | None,
    now: ProcessView,
    lines_before: Sequence[SiteWaits] = (),
    lines: Sequence[SiteWaits] = (),
    **options: float,
) -> Verdict:
    """Return the verdict on two views, and on what host waits cost by line then."""
    earlier = None if before is None else Reading(before, lines_before)
    return judged(earlier, Reading(now, lines), **options)


def busy(seconds: float, *, held: float = 0.0, **more: int) -> dict[str, int]:
    """Return what a stream counts in a second, launches included."""
    idle = int((1 - seconds - held) * SECOND)
    counts = {"submitted": 2001, "retired": 2001, "idle_ns": idle, "starved_ns": idle}
    return counts | {"held_ns": int(held * SECOND)} | more


@pytest.mark.parametrize(
    ("streams", "kind"),
    [
        ([busy(0.95)], "device-bound"),
        # Two streams that take turns, and are never without work.
        ([busy(0.5, held=0.5), busy(0.5, held=0.5)], "device-bound"),
        # One waits for copies, which come too late.
        ([busy(0.3, held=0.7), busy(0.2)], "held"),
        # One waits for what the other does, and that one for launches.
        ([busy(0.3), busy(0.1, held=0.9)], "launch-bound"),
        ([busy(0.3)], "launch-bound"),
        # Its gaps are long: Python does something else.
        ([busy(0.1, starved_ns=SECOND // 100)], "host-bound"),
        # As many launches in long gaps: bursts of them.
        (
            [busy(0.1, starved_ns=SECOND // 100, submitted=9001, retired=9001)],
            "launch-bound",
        ),
        ([busy(0.3, full_wait_ns=SECOND // 2)], "blocked"),
        # A full queue is usual where the device is the limit.
        ([busy(0.95, full_wait_ns=SECOND // 2)], "device-bound"),
        ([{}, {}], "idle"),
    ],
)
def test_the_kind_says_what_is_short(views, streams, kind):
    verdict = judge(*views(*streams))

    assert verdict.kind == kind, verdict
    assert verdict.text.startswith(f"{kind}: ")
    assert bool(verdict.action), verdict


def test_each_kind_has_a_place_in_the_order():
    ranks = [attention(kind) for kind in KINDS]

    assert ranks == sorted(ranks)
    assert ranks[0] < ranks[2] < ranks[4] < ranks[-1]


def test_a_blocked_process_names_the_line_that_waited_most_lately(views):
    before, now = views(busy(0.3, full_wait_ns=SECOND // 2))
    old = [SiteWaits("/a/old.py:1 in f", "item", 9, 9 * SECOND)]
    new = [*old, SiteWaits("/a/train.py:7 in step", "operator", 3, SECOND // 2)]

    verdict = judge(before, now, lines_before=old, lines=new)

    assert verdict.at == "/a/train.py:7 in step"
    assert verdict.text.endswith("; most at train.py:7 in step")
    assert verdict.action.startswith("at train.py:7 in step, use an operator whose")


def test_a_hung_process_names_the_culprit_and_not_its_victim(views):
    before, now = views({}, {})
    stuck = {"submitted": 9, "retired": 3}
    victim, culprit = (
        stream._replace(
            oldest_since=now.tick - 60, stats=stream.stats._replace(**stuck, **more)
        )
        for stream, more in zip(
            now.streams,
            (
                {"held_by": (0, 1), "held_until": 5, "running_at": "a.py:1 in victim"},
                {"running": "aten::mm", "running_at": "/b/a.py:2 in culprit"},
            ),
            strict=True,
        )
    )

    verdict = judge(before, now._replace(streams=(victim, culprit)))

    assert verdict.kind == "hung"
    assert "stream 1 runs aten::mm, no progress for 60 s" in verdict.text
    assert verdict.at == "/b/a.py:2 in culprit"
    assert "npu-dispatch dump" in verdict.action


def test_an_event_that_nobody_has_recorded_is_told_before_the_process_hangs(views):
    waits = {"running": "external event wait", "running_at": "/a/b.py:3 in f"}
    waits |= {"submitted": 9, "retired": 3}

    verdict = judge(*views(busy(0.0, held=1.0, **waits)))

    assert (verdict.kind, verdict.at) == ("held", "/a/b.py:3 in f")
    assert verdict.text == "held: npu:0 stream 0 waits for an event nobody has recorded"
    assert "event.record(stream)" in verdict.action


WAITS = """
import torch, torch_npu
x = torch.ones(4, device="npu")
torch.npu.synchronize()
event = torch_npu.npu.ExternalEvent()
event.wait(torch.npu.current_stream())
x.add_(1)
print("waits", flush=True)
input()
event.record(torch.npu.current_stream())
"""


def test_a_wait_for_an_event_that_nobody_records_is_called_that(trainer):
    program = trainer(WAITS, NPU_DISPATCH_TORCH_NPU_ALIAS="1")
    assert program.line() == "waits"
    with Processes(pid=program.pid) as processes:
        while True:  # the launcher is on its way to it
            [view] = processes.refresh()
            verdict = judge(None, view, hang_seconds=0.0)
            if view.streams[0].stats.running:
                break

    assert "waits for an event nobody has recorded" in verdict.text
    assert verdict.at == "<string>:6 in <module>"


@pytest.mark.parametrize("step", [-7200.0, 7200.0])
@pytest.mark.parametrize("hang_seconds", [60.0, 3600.0])
def test_a_step_of_the_wall_clock_changes_no_age_and_no_verdict(
    write_segment, ghost, monkeypatch, step, hang_seconds
):
    """A stream has stood still for 100 s, whatever the clock on the wall says."""
    then = time.monotonic_ns() - 100 * SECOND
    words = {"tail": 9, "retired": 4, "last_retired_ns": then, "woken_ns": then}
    folder = write_segment(
        ghost, {(f"StreamBlock.{name}", 0): word for name, word in words.items()}
    )

    def look() -> tuple[str, list[float]]:
        with Processes(directory=folder) as processes:
            [view] = processes.refresh()
        [stream] = view.streams
        assert stream.oldest_since is not None
        shown = process_values(None, Reading(view), hang_seconds)
        [told] = re.findall(r"oldest for ([\d.]+) s", "\n".join(dump_lines(view)))
        ages = [view.tick - stream.oldest_since, shown["streams"][0]["age_s"]]
        return shown["verdict"]["kind"], [*ages, float(told)]

    config = ServiceConfig(directory=folder, hang_seconds=hang_seconds, max_rate=1e9)
    with TestClient(create_app(config), base_url="http://localhost") as client:
        kind, ages = look()
        real, real_ns = time.time, time.time_ns
        monkeypatch.setattr(time, "time", lambda: real() + step)
        monkeypatch.setattr(time, "time_ns", lambda: real_ns() + int(step * 1e9))
        stepped, later = look()
        livez = client.get("/livez")

    assert (kind == "hung") == (hang_seconds == 60.0)
    assert stepped == kind
    assert all(100 <= age < 3600 for age in (*ages, *later)), (ages, later)
    assert livez.status_code == 200


def test_a_process_that_launches_nothing_for_long_is_quiet_and_not_idle(views):
    before, now = views({})
    last = RecentTask(7, "aten::add", "/way/to/train.py:31 in step", "begun")
    quiet = now._replace(quiet_since=now.tick - 42, last_task=last)
    text = (
        "quiet: nothing launched for 42 s, nothing queued, last aten::add at "
        "train.py:31 in step; Python is elsewhere: py-spy dump --subprocesses --pid "
    )

    # Also at the first look, as `npu-dispatch ps` has it.
    for earlier in (before, None):
        assert judge(earlier, quiet).text == f"{text}{now.info.pid}"
    assert judge(before, quiet, hang_seconds=60).kind == "idle"


def test_a_quiet_process_tells_its_last_launch(trainer, monkeypatch):
    monkeypatch.setattr("npu_dispatch.observe.segment.listing._QUIET_S", 0.0)
    one = trainer("""
import torch
x = torch.ones(4, device="npu")
for _ in range(64):
    x.add_(1)
torch.npu.synchronize()
print("done", flush=True)
input()
""")
    assert one.line() == "done"

    with Processes(pid=one.pid) as processes:
        [view] = processes.refresh()
        lines = list(dump_lines(view))

    assert view.quiet_since is not None and view.quiet_since <= view.tick
    assert view.last_task is not None and view.last_task.op == "aten::add_.Tensor"
    assert any("last aten::add_.Tensor at <string>:5" in line for line in lines)
    assert lines[-1].endswith(f"py-spy dump --subprocesses --pid {one.pid}")


def test_a_wait_that_lasts_counts_before_it_ends(write_segment, ghost):
    item = WAIT_REASONS.index("item")
    assert item == 0
    fields = {
        ("DeviceBlock.waiting", 0): 1,
        ("DeviceBlock.waiting_from", 0): time.monotonic_ns() - 5 * SECOND,
    }
    with Processes(directory=write_segment(ghost, fields)) as processes:
        [view] = processes.refresh()

    [device] = view.devices
    assert device.waiting["item"] == 1
    assert device.wait_ns["item"] >= 5 * SECOND
    before = view._replace(tick=view.tick - 10, devices=())
    assert sync_rates(before, view)["item"] >= 0.5


FAILS = """
import torch
weight, index = torch.ones(4, 2).npu(), torch.tensor([9]).npu()
torch.nn.functional.embedding(index, weight)
try:
    torch.npu.synchronize()
except IndexError:
    print("failed", flush=True)
input()
"""


def test_all_that_tell_of_a_process_say_the_same(trainer):
    program = trainer(FAILS)
    assert program.line() == "failed"
    [row] = Sampler([program.pid]).sample().processes
    scrapes = Scrapes(ServiceConfig(pid=program.pid))
    [found] = [
        sample.labels["kind"]
        for family in scrapes.families()
        if family.name == "npu_dispatch_process_verdict"
        for sample in family.samples
        if sample.value
    ]
    app = create_app(ServiceConfig(pid=program.pid, max_rate=1e9))
    with TestClient(app, base_url="http://localhost") as client:
        [shown] = client.get("/api/v1/snapshot").json()["processes"]

    told = shown["verdict"]
    assert (row["verdict"], told["kind"], found) == ("failed",) * 3
    assert told["at"] == row["at"]
    assert told["action"]


def test_a_rank_that_waits_for_others_is_not_bound_by_its_device(views):
    """Its stream runs the collective meanwhile, or its host waits for the value."""
    for streams in ([busy(0.99)], [busy(0.3, full_wait_ns=SECOND // 2)]):
        before, now = views(*streams)
        alone = judge(before, now)
        verdict = judge(before, now._replace(waited_ns=before.waited_ns + SECOND))

        assert alone.kind in ("device-bound", "blocked")
        assert verdict.kind == "waiting", verdict
        assert "100%" in verdict.text
        assert "--all-ranks" in verdict.action


def test_a_pause_between_two_steps_is_not_idleness(views):
    _, now = views(busy(0.9))
    paused = now._replace(tick=now.tick + 0.25, quiet_since=now.tick)
    later = now._replace(tick=now.tick + 5, quiet_since=now.tick)

    assert now.streams[0].stats.submitted > 0
    assert judge(now, paused).kind == judge(None, paused).kind != "idle"
    assert judge(now, later).kind == "idle"


STOPPED = """
import sys, torch
x = torch.ones(3, device="npu")
torch.npu.synchronize()
print("ready", flush=True)
sys.stdin.readline()
"""


def test_a_process_that_a_signal_has_stopped_is_not_hung(fresh_python):
    pipes = {"stdin": PIPE, "stdout": PIPE}
    with fresh_python.start("-c", STOPPED, **pipes) as process:
        assert process.stdout.readline() == "ready\n"
        with Processes(pid=process.pid) as processes:
            [before] = processes.refresh()
            os.kill(process.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            [now] = processes.refresh()
            verdict = judge(before, now, hang_seconds=0)
            process.send_signal(signal.SIGCONT)
        process.communicate("\n")

    assert not before.stopped
    assert verdict.kind == "stopped"
    assert f"kill -CONT {process.pid}" in verdict.action
    assert attention(verdict.kind) == 0


QUEUED = """
import sys, torch
from npu_dispatch import _C
x = torch.ones(3, device="npu")
torch.npu.synchronize()
for n in range(64):
    torch.npu.current_stream().submit(sys.stdin.readline)
print("queued", flush=True)
torch.npu.synchronize()
"""


def test_the_oldest_task_has_its_own_age_and_not_that_of_the_last_progress(
    fresh_python,
):
    pipes = {"stdin": PIPE, "stdout": PIPE}
    with fresh_python.start("-c", QUEUED, **pipes) as process:
        assert process.stdout.readline() == "queued\n"
        with Processes(pid=process.pid) as processes:
            for done in range(1, 49):
                process.stdin.write("\n")
                process.stdin.flush()
                while True:  # until that task has ended
                    [view] = processes.refresh()
                    [stream] = [s for s in view.streams if s.stats.depth]
                    if stream.stats.depth <= 64 - done:
                        break
                if done == 1:
                    first = time.monotonic()
        assert stream.oldest_queued <= first < stream.oldest_since
        process.communicate("\n" * 16)


def test_a_launcher_without_a_core_is_told_and_who_has_them(views):
    before, now = views(busy(0.3))
    waited = [s._replace(core_wait_ns=3 * SECOND // 10) for s in now.streams]

    verdict = judge(before, now._replace(streams=tuple(waited)))

    assert verdict.kind == judge(before, now).kind == "launch-bound"
    assert verdict.text.endswith(
        "; other programs keep its launcher from a core 30% of the time"
    )
    alone = judge(before, now).action
    assert verdict.action.startswith(f"{alone}; stop the other programs")
    assert "from a core" not in judge(before, now).text


def test_the_wait_of_a_launcher_for_a_core_is_the_kernels_own_count(trainer):
    program = trainer("""
import torch
x = torch.ones(8, device="npu")
for _ in range(1000):
    x.add_(1)
torch.npu.synchronize()
print("ready", flush=True)
input()
""")
    assert program.line() == "ready"

    def launcher(processes):
        [view] = processes.refresh()
        return next(s for s in view.streams if s.stats.submitted)

    with Processes(pid=program.pid) as processes:
        thread = launcher(processes).stats.thread
        path = Path(f"/proc/{program.pid}/task/{thread}/schedstat")
        before = int(path.read_text().split()[1])
        told = launcher(processes).core_wait_ns
        after = int(path.read_text().split()[1])
    assert before <= told <= after
