"""Processes are called by what they run."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from npu_dispatch.processes.script_name import name_of, script_name


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


def test_a_running_process_and_one_that_is_gone():
    # A process has no words for a moment while it begins its program: the kernel
    # lets Popen() return before it has laid them out. This one says that it runs.
    child = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    child.stdout.read(1)
    name = name_of(child.pid)
    child.communicate("\n")

    assert name == "python -c" and name_of(child.pid) == ""
    assert name_of(os.getpid()) != ""
