"""What a living process publishes of itself: why a stream failed, and which program."""

from __future__ import annotations

import re
from pathlib import Path

from npu_dispatch.observe.judge.describe import dump_lines
from npu_dispatch.observe.judge.rates import Reading
from npu_dispatch.observe.judge.verdict import judge
from npu_dispatch.observe.segment import segment_file
from npu_dispatch.observe.segment.listing import Processes
from npu_dispatch.observe.serve.options import ServiceConfig
from npu_dispatch.observe.serve.scrapes import Scrapes
from npu_dispatch.words import short

FAILS = """
import sys, torch
x = torch.arange(4.0, device="npu")
index = torch.tensor([1, 9], device="npu")
y = x[index]  # 9 is out of bounds
try:
    torch.npu.synchronize()
except Exception:
    pass
print("failed", flush=True)
sys.stdin.readline()
torch.npu.clear_error()
x = x + 1
torch.npu.synchronize()
print("cleared", flush=True)
sys.stdin.readline()
"""
# Replaces itself by a program that never heard of npu, and by one that uses it.
REPLACED = """
import os, sys, torch
torch.ones(2, device="npu").sum().item()
print("before", flush=True)
sys.stdin.readline()
os.execv(sys.executable, [sys.executable, "-u", "-c", {program!r}])
"""
OTHER = "print('other'); input()"
SAME = "import torch; torch.ones(2, device='npu').sum().item(); print('other'); input()"


def lines(scrapes: Scrapes) -> dict[str, set[tuple[str | None, str]]]:
    """Return the kinds and lines of each metric that has lines."""
    found: dict[str, set[tuple[str | None, str]]] = {}
    for sample in (s for metric in scrapes.families() for s in metric.samples):
        if "line" in sample.labels and "killed" not in sample.name:
            at = sample.labels.get("kind"), sample.labels["line"]
            found.setdefault(sample.name, set()).add(at)
    return found


def test_a_failed_stream_says_why_and_at_which_line(trainer):
    program = trainer(FAILS)
    assert program.line() == "failed"
    with Processes(pid=program.pid) as processes:
        [view] = processes.refresh()
        [stream] = [s.stats for s in view.streams if s.stats.failed]
        assert stream.state == "failed"
        assert re.match(r"aten::index\b.*: .*out of bounds", stream.failure)
        assert re.search(r":5\b", stream.failure_at)
        verdict = judge(None, Reading(view))
        assert (verdict.kind, verdict.at) == ("failed", stream.failure_at)
        assert "out of bounds" in verdict.text
        [line] = [x for x in dump_lines(view) if "failed" in x]
        assert line.endswith(f"{stream.failure}, launched at {stream.failure_at}")

        line = short(stream.failure_at)
        scrapes = Scrapes(ServiceConfig(pid=program.pid))
        assert lines(scrapes) == {
            "npu_dispatch_process_line_info": {("failed", line)},
            "npu_dispatch_stream_error_state": {(None, line)},
        }

        program.say("")
        assert program.line() == "cleared"
        assert lines(scrapes) == {}
        [view] = processes.refresh()
        assert {(s.stats.state, s.stats.failure) for s in view.streams} == {
            ("running", "")
        }


def test_a_program_that_was_replaced_is_neither_listed_nor_killed(trainer):
    program = trainer(REPLACED.format(program=OTHER))
    assert program.line() == "before"
    with Processes(pid=program.pid) as known:
        assert len(known.refresh()) == 1
        file = segment_file(program.pid)
        program.say("")
        assert program.line() == "other"

        assert known.refresh() == ()
        assert known.killed == 0
        with Processes(pid=program.pid) as new:
            assert new.refresh() == ()
        assert not Path(file).exists()
        assert not Path(f"{file}.dead").exists()


def test_its_next_program_is_listed_where_it_uses_the_device(trainer):
    program = trainer(REPLACED.format(program=SAME))
    assert program.line() == "before"
    with Processes(pid=program.pid) as known:
        [before] = known.refresh()
        program.say("")
        assert program.line() == "other"
        [after] = known.refresh()

    assert after.info.stack_start not in (0, before.info.stack_start)
    assert after.info.process_start == before.info.process_start
