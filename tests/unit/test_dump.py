"""What a process that hangs is doing, told from outside."""

import re
from subprocess import PIPE

import pytest
from click.testing import CliRunner

from npu_dispatch.cli import main
from npu_dispatch.config import for_child

# Holds npu:0's stream in a kernel, another stream behind it, and then the
# main thread: first its own line, then that it is about to wait.
PROGRAM = """
import sys, threading, torch
gate, entered = threading.Event(), threading.Event()
x = torch.ones(2).npu()
torch.npu.synchronize()
def hold():
    entered.set()
    gate.wait()
torch.npu.current_stream().submit(hold, name="hold")  # line 9
entered.wait()
other = torch.npu.Stream()
other.wait_stream(torch.npu.current_stream())
with torch.npu.stream(other):
    y = x + 1
def finish():
    sys.stdin.readline()
    gate.set()
threading.Thread(target=finish).start()
print("held", flush=True)
torch.npu.synchronize()  # line 20
"""


@pytest.fixture
def start(python):
    started = []

    def run(program=PROGRAM, **variables):
        pipes = {"stdin": PIPE, "stdout": PIPE, "stderr": PIPE}
        process = python.start("-c", program, env=for_child(**variables), **pipes)
        started.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def dump(process, *words: str) -> str:
    """Return what is told of a process, once it has these words."""
    text = ""
    while not text or not all(word in text for word in words):
        assert process.poll() is None
        result = CliRunner().invoke(main, ["dump", str(process.pid)])
        assert result.exit_code == 0, result.output
        text = result.output
    return text


def test_a_dump_names_operator_line_waits_and_reasons(start):
    process = start()

    text = dump(process, "host thread", "waits for task")

    assert re.search(
        r"npu:0 stream 0: task \d+ runs hold, launched at "
        r"<string>:9 in <module>; 1 queued",
        text,
    )
    assert re.search(
        r"npu:0 stream \d+: task \d+ waits for task \d+ of npu:0 str", text
    )
    assert "reason device_sync, at <string>:20 in <module>" in text
    _, errors = process.communicate("\n")
    assert process.returncode == 0, errors


def test_a_process_that_is_not_there_is_said_so():
    result = CliRunner().invoke(main, ["dump", "1"])

    assert result.exit_code == 1
    assert "no process 1" in result.output


def test_the_watchdog_dumps_a_standstill_by_itself(start):
    process = start(NPU_DISPATCH_WATCHDOG="200ms")

    lines = []
    while not any("runs hold" in line for line in lines):
        lines.append(process.stderr.readline())
        assert lines[-1], "the process ended without a dump"

    assert lines[0].startswith("npu_dispatch: no progress for ")
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.wait() == 0


CIRCLE = """
import torch
a, b = torch.npu.Stream(), torch.npu.Stream()
first, second = torch.npu.ExternalEvent(), torch.npu.ExternalEvent()
second.wait(a)
first.record(a)
first.wait(b)
second.record(b)
print("held", flush=True)
torch.npu.synchronize()
"""


def test_a_circle_of_external_events_is_named_from_outside(start):
    process = start(CIRCLE)

    text = dump(process, "circle")

    held = re.findall(r"(\d+): task 0 waits for task 2 of npu:0 stream (\d+),", text)
    assert len(held) == 2
    assert held[0] == held[1][::-1]
    assert "launched at <string>:5 in <module>" in text
