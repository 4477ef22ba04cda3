"""Processes are called by what they run."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import npu_dispatch
from npu_dispatch.observe.judge.postmortem import dead, opened, postmortem_lines
from npu_dispatch.observe.segment.script_name import name_of, script_name


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python train.py", "train.py"),
        ("/usr/bin/python3.11 -u -X dev /long/way/train.py --lr 1", "train.py"),
        ("python -m pytest tests", "-m pytest"),
        ("python -W ignore -m torch.distributed.run a.py", "-m torch.distributed.run"),
        ("python -c print", "python -c"),
        ("python", "python"),
        ("python /v/bin/npu-dispatch run --torch-npu examples/gpt.py 3", "gpt.py"),
        ("npu-dispatch run --json out.json train.py", "train.py"),
        ("python -m npu_dispatch sanitize -m package.train", "-m package.train"),
        ("python -m npu_dispatch serve", "-m npu_dispatch"),
        ("/v/bin/python /v/bin/npu-dispatch serve", "npu-dispatch"),
        ("/opt/server --port 1", "server"),
        ("", ""),
    ],
)
def test_a_command_has_a_name(command, name):
    assert script_name(command.split(" ")) == name


def test_a_worker_of_multiprocessing_is_told_from_python_c():
    code = "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)"

    assert script_name(["python", "-c", code, "--multiprocessing-fork"]) == (
        "multiprocessing"
    )


def test_a_process_is_named_by_its_segment_also_when_it_is_dead(tmp_path):
    script = tmp_path / "train it.py"
    script.write_text(
        "import os, signal, torch\n"
        "torch.ones(2, device='npu')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    child = subprocess.Popen([sys.executable, "-u", script, "--lr", "1"])
    child.wait()

    [path] = [p for p in dead() if p.name.partition(".")[0] == str(child.pid)]
    reader = opened(path)
    assert reader is not None
    with reader:
        info, lines = reader.info, list(postmortem_lines(reader))

    assert name_of(info) == "train it.py"
    assert info.command[-2:] == ("--lr", "1")
    assert info.package == npu_dispatch.__version__
    assert torch.__version__.startswith(info.torch)
    assert lines[0].startswith(f"process {child.pid}, train it.py")
