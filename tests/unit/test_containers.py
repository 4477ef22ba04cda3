"""Containers that share /dev/shm: a process number stands for several processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from interpreter import environment
from own_mounts import in_own_mounts

# What each container runs, in the order that the driver asks for.
INSIDE = """
import json, os, sys, torch
torch.ones(2).npu().sum().item()
from npu_dispatch import _C
from npu_dispatch.npu.monitoring.processes import _processes
from npu_dispatch.observe.segment.listing import Processes
files = [_C.segment_path()]
inodes = [os.stat(path).st_ino for path in files]
event = torch.npu.Event(interprocess=True)
event.record()
print(json.dumps([os.getpid(), *files]), flush=True)
for line in sys.stdin:
    if line == "collect\\n":
        torch.npu.ipc_collect()
        torch.npu.Event(interprocess=True)
    same = [os.stat(path).st_ino for path in files] == inodes
    with Processes() as processes:
        seen = len(processes.refresh())
    mine = list(_processes(0)) == [os.getpid()]
    print(json.dumps([same, event._path.exists(), seen, mine]), flush=True)
"""
# The three of them, in mounts of their own, which they share.
DRIVER = """
import json, os, signal, subprocess, sys
def container():
    return subprocess.Popen(
        ["unshare", *sys.argv[2:], sys.executable, "-c", sys.argv[1]],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
def said(one):
    return json.loads(one.stdout.readline())
def ask(one, what=""):
    print(what, file=one.stdin, flush=True)
    return said(one)
first = container(); names = [said(first)]
second = container(); names.append(said(second))
answers = [ask(first, "collect"), ask(second, "collect"), ask(first)]
[inner] = open(f"/proc/{first.pid}/task/{first.pid}/children").read().split()
os.kill(int(inner), signal.SIGKILL)
first.wait()
answers.append(ask(second))
second.stdin.close(), second.wait()
print(json.dumps([names, answers]))
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    "flags", [("-pf", "--mount-proc"), ("-pf",)], ids=["proc", "no-proc"]
)
def test_two_containers_leave_each_others_files_alone(tmp_path: Path, flags) -> None:
    world = in_own_mounts("mount -t tmpfs -o mode=1777 tmpfs /dev/shm")

    done = subprocess.run(
        [*world, sys.executable, "-c", DRIVER, INSIDE, *flags],
        env=environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 0, done.stderr
    names, answers = json.loads(done.stdout)
    (pid, one), (same_pid, other) = names
    assert pid == same_pid == 1
    assert one != other and Path(other).name.startswith("1-")
    # Each finds its own files as they were, and both processes.
    assert [answer[:3] for answer in answers[:3]] == 3 * [[True, True, 2]]
    # The first one has been killed.
    assert answers[3][:3] == [True, True, 1]
    if "--mount-proc" in flags:
        assert all(answer[3] for answer in answers)
