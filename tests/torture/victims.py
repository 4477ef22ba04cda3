"""Children in which something is made to fail, and what must hold of each.

A child is forked from a process that has imported torch and has not yet used the
device: it begins cold, as a program does, and costs no import. It tells what it
saw by one line of JSON, and must then come to its end by itself.
"""

import contextlib
import gc
import os
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # shape functions in Python ask for it: a second

import npu_dispatch  # noqa: F401
from tests.search import children
from tests.torture import program
from tests.torture.part import Told

# Nothing that a child does takes more than a second; the machine may be busy.
PATIENCE_S = float(os.environ.get("NPU_TORTURE_PATIENCE_S", "40"))
TYPED = (RuntimeError, MemoryError, OSError, IndexError)


def expected() -> program.State:
    """Return what the program gives, computed on the host, by a child.

    This process forks, and a team of OpenMP threads would not survive that.
    """
    found = children.call(program.run, "cpu")
    assert not isinstance(found, children.Died), found
    return found


def outcome(wanted: program.State, **options: Any) -> Told:
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
    from npu_dispatch.observe.segment import StatsReader

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


def in_child(
    body: Callable[[], Told],
    *,
    while_it_runs: Callable[[int], None] | None = None,
    leave: bool = False,
) -> Told:
    """Run body() in a forked child, and say how it came to its end: `bad`, `hang`.

    With `leave` the child ends as a program does, with all that happens at exit.
    """
    found = children.call(
        body,
        seconds=PATIENCE_S,
        leaves=leave,
        debugger=True,
        while_it_runs=while_it_runs,
    )
    if isinstance(found, children.Died):
        return {"bad": str(found), "hang": found.hangs}
    return found


def again(wanted: program.State) -> Told:
    """After something failed: the next program works and nothing is left."""
    clear()
    gc.collect()
    told: Told = {}
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
