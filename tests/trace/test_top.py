"""`ps` and `top`: rows of figures, from outside."""

import io
import json
import os
import subprocess
import sys
import time

import torch
from rich.console import Console

from npu_dispatch import _C
from npu_dispatch.observe.judge import top


def test_this_process_and_its_streams_are_listed():
    torch.npu.init()
    sampler = top.Sampler([os.getpid()])
    sampler.sample()
    started = time.monotonic()
    for _ in range(160):
        _C.submit_nothing()
    torch.npu.synchronize()
    took_us = (time.monotonic() - started) * 1e6
    processes, streams, _ = sampler.sample()
    process = next(row for row in processes if row["pid"] == os.getpid())
    default = next(s for s in streams if s["stream"] == 0)
    assert process["streams"] == len(streams)
    assert process["submitted"] >= default["submitted"] >= 160
    assert default["tasks_per_s"] > 0
    # No task took longer than all of them; a bucket is up to a quarter wide.
    assert 0 < default["latency_us_p50"] <= default["latency_us_p99"] <= 1.25 * took_us


# Each says when it is done, and stays.
STAYS = """
import sys, torch
{}
print("done", flush=True)
sys.stdin.readline()
"""
PROGRAMS = {
    "waits": "torch.npu.init()",
    "rests": "torch.ones(3, device='npu') + 1; torch.npu.synchronize()",
    "fails": """
w, i = torch.ones(4, 2).npu(), torch.tensor([9]).npu()
torch.nn.functional.embedding(i, w)
try:
    torch.npu.synchronize()
except IndexError:
    pass
""",
}


def test_who_needs_people_is_first_and_who_launched_nothing_is_hidden(
    child_environment, tmp_path
):
    started = []
    for name, code in PROGRAMS.items():
        script = tmp_path / f"{name}.py"
        script.write_text(STAYS.format(code))
        started.append(
            subprocess.Popen(
                [sys.executable, "-u", str(script), "--lr", "1"],
                env=child_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        )
    try:
        for child in started:
            assert child.stdout.readline() == b"done\n"
        pids = {child.pid for child in started}

        rows, streams, _ = top.Sampler().sample()
        everybody = top.Sampler(everybody=True).sample().processes
        rows = [row for row in rows if row["pid"] in pids]
        streams = [row for row in streams if row["pid"] in pids]
        everybody = [row for row in everybody if row["pid"] in pids]

        assert [row["name"] for row in rows] == ["fails.py", "rests.py"]
        assert rows[0]["verdict"] == "failed"
        assert {row["pid"] for row in streams} == {row["pid"] for row in rows}
        assert everybody[0]["name"] == "fails.py"
        assert {row["name"] for row in everybody} == {
            "fails.py",
            "rests.py",
            "waits.py",
        }
    finally:
        for child in started:
            child.kill()
            child.communicate()


def npu_dispatch(environment, *args):
    return subprocess.run(
        [sys.executable, "-m", "npu_dispatch", *args],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_the_commands_print_tables_and_json(child_environment):
    torch.ones(1, device="npu")
    pid = str(os.getpid())
    assert pid in npu_dispatch(child_environment, "ps")
    listed = json.loads(npu_dispatch(child_environment, "ps", "--json"))
    assert os.getpid() in [row["pid"] for row in listed]
    once = npu_dispatch(child_environment, "top", "--once", "--interval", "0", pid)
    assert "npu:0/0" in once
    sample = json.loads(
        npu_dispatch(child_environment, "top", "--json", "--interval", "0", pid)
    )
    assert {row["pid"] for row in sample["streams"]} == {os.getpid()}


class Fixed:
    """A sampler of one process that calls itself what looks like markup."""

    def __init__(self, samples: int):
        self.left = samples

    def sample(self):
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        row = dict.fromkeys(("pid", "streams", "queued", "submitted", "age_s"), 7)
        row |= {"name": "[/x].py", "rank": str(self.left), "verdict": "idle"}
        row |= {"allocated": 0, "reserved": 0, "command": "f(list[int])"}
        return top.Sample([row], [], [])


def test_a_command_of_several_lines_takes_one_and_no_escape_reaches_the_terminal():
    sample = Fixed(samples=1).sample()
    sample.processes[0]["command"] = "python -c import os\n\x1b[2J"

    _, line = sample.process_table().splitlines()
    assert line.endswith("python -c import os  [2J")


def test_the_live_tables_are_those_of_each_sample_until_ctrl_c(monkeypatch):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=200, height=24)
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)

    top.live(Fixed(samples=2), 0.0, console)

    shown = screen.getvalue()
    lines = [line for line in shown.splitlines() if "[/x].py" in line]
    assert [line.split()[2] for line in lines] == ["1", "0"]
    assert all("f(list[int])" in line for line in lines)
    assert len(slept) == 2 and min(slept) > 0
