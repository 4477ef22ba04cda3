"""Children in which something is made to fail, and what must hold of each.

A child is forked from a process that has imported torch and has not yet used the
device: it begins cold, as a program does, and costs no import. It tells what it
saw by one line of JSON, and must then come to its end by itself.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # shape functions in Python ask for it: a second

import npu_dispatch  # noqa: F401
from tests.torture import program

# Nothing that a child does takes more than a second; the machine may be busy.
PATIENCE_S = float(os.environ.get("NPU_TORTURE_PATIENCE_S", "40"))
TYPED = (RuntimeError, MemoryError, OSError, IndexError)


def expected() -> program.State:
    """Return what the program gives, computed on the host, by a child.

    This process forks, and a team of OpenMP threads would not survive that.
    """
    with tempfile.TemporaryFile() as file:
        pid = os.fork()
        if pid == 0:
            torch.save(program.run("cpu"), file)
            file.flush()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        file.seek(0)
        found: program.State = torch.load(file)
    return found


def outcome(wanted: program.State, **options: Any) -> dict[str, Any]:
    """Run the program once; return whether it was right, or what it raised."""
    try:
        found = program.run("npu", **options)
    except TYPED as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [f for f in frames if f.filename == program.__file__]
        return {
            "raised": type(error).__name__,
            "text": str(error)[:400],
            "line": lines[-1].lineno if lines else 0,
        }
    wrong = program.differences(found, wanted)
    return {"wrong": wrong} if wrong else {"right": True}


def clear() -> None:
    """Take the errors of all streams away, as a program does that goes on."""
    from npu_dispatch import _C

    for device in range(torch.npu.device_count()):
        for _, stream, *_ in _C.device_tails(device):
            with contextlib.suppress(Exception):
                _C.clear_error(device, stream)


def left_behind() -> list[str]:
    """Return what a program that has ended left: tasks, errors, memory."""
    from npu_dispatch import _C
    from npu_dispatch.stats import StatsReader

    found = []
    gc.collect()
    torch.npu.synchronize()
    path = _C.segment_path()
    if path:
        with StatsReader(Path(path)) as reader:
            found += [
                f"stream {s.stream}: {s.submitted - s.retired} tasks, {s.state}"
                for s in reader.streams()
                if s.submitted != s.retired or s.state == "failed"
            ]
    return found


def settled_memory() -> int:
    gc.collect()
    torch.npu.synchronize()
    return torch.npu.memory_allocated()


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


class Verdict(dict[str, Any]):
    """What one child said, or did not; `bad` says what must not be."""

    @property
    def bad(self) -> str:
        return str(self.get("bad", ""))


def stacks(pid: int) -> str:
    """Return where the threads of a child are, if there is a debugger to ask."""
    gdb = shutil.which("gdb")
    if gdb is None:
        return ""
    show = "thread apply all -ascending bt 16"
    command = [gdb, "-p", str(pid), "-batch", "-ex", show]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [x for x in done.stdout.splitlines() if x.startswith(("#", "Thread"))]
    return "\n".join(lines)[:6000]


def _child(body: Callable[[], dict[str, Any]], out: int, leave: bool) -> None:
    try:
        told = body()
    except BaseException as error:
        told = {"bad": "".join(traceback.format_exception(error))[-1500:]}
    os.write(out, json.dumps(told).encode() + b"\n")
    os.close(out)
    if not leave:
        os._exit(0)


def in_child(
    body: Callable[[], dict[str, Any]],
    *,
    while_it_runs: Callable[[int, int], None] | None = None,
    leave: bool = False,
) -> Verdict:
    """Run body() in a forked child, and judge how it came to its end.

    With `leave` the child ends as a program does, with all that happens at exit.
    `while_it_runs(pid, pipe)` may do something to it.
    """
    sys.stdout.flush()
    ours, theirs = os.pipe()
    err = os.memfd_create("stderr")
    pid = os.fork()
    if pid == 0:
        os.close(ours)
        os.dup2(err, 2)
        faulthandler.enable()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _child(body, theirs, leave)
        sys.exit(0)
    os.close(theirs)
    pidfd = os.pidfd_open(pid)
    if while_it_runs:
        while_it_runs(pid, ours)
    verdict = Verdict()
    deadline = time.monotonic() + PATIENCE_S
    text = b""
    while time.monotonic() < deadline:
        if not select.select([ours], [], [], max(0, deadline - time.monotonic()))[0]:
            break
        piece = os.read(ours, 65536)
        if not piece:
            break
        text += piece
    if not select.select([pidfd], [], [], max(0, deadline - time.monotonic()))[0]:
        verdict["hang"] = True
        verdict["stacks"] = stacks(pid)
        os.kill(pid, signal.SIGABRT)  # which says where its threads are
        if not select.select([pidfd], [], [], 20)[0]:
            os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    os.close(pidfd)
    os.close(ours)
    os.lseek(err, 0, os.SEEK_SET)
    words = os.read(err, 20000).decode(errors="replace")
    os.close(err)
    with contextlib.suppress(ValueError):
        verdict.update(json.loads(text))
    code = os.waitstatus_to_exitcode(status)
    if verdict.get("hang"):
        verdict["bad"] = "hangs: " + verdict["stacks"] + words[:3000]
    elif code:
        verdict["bad"] = f"ended with {code}: {words[-2000:]}"
    elif not text:
        verdict["bad"] = "said nothing: " + words[-2000:]
    verdict["stderr"] = words[-300:]
    return verdict


def again(wanted: program.State) -> dict[str, Any]:
    """After something failed: the next program works and nothing is left."""
    clear()
    gc.collect()
    told: dict[str, Any] = {}
    for attempt in range(2):
        memory, files = settled_memory(), descriptors()
        threads = threading.active_count()
        result = outcome(wanted)
        if "right" not in result:
            return {"bad": f"the next program: {result}"}
        if attempt and settled_memory() > memory:
            return {"bad": f"leaks {settled_memory() - memory} bytes"}
        if attempt and descriptors() > files:
            return {"bad": f"leaks {descriptors() - files} descriptors"}
        if threading.active_count() > threads:
            return {"bad": "leaks threads"}
    if left := left_behind():
        return {"bad": f"left: {left}"}
    return told
