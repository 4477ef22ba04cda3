"""What a whole operator asks of the heap and of locks, on the thread that calls it.

The peer is torch on cpu: the same Python calls, dispatcher and tensors.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import preload

pytestmark = pytest.mark.libc_heap

COUNTERS = """
import ctypes, json, torch
library = ctypes.CDLL(None)
counters = library.counted_allocations, library.counted_locks
for counter in counters:
    counter.restype = ctypes.c_long
"""

COUNT = (
    COUNTERS
    + """
def calls_of(device):
    x, y, out = (torch.ones(8, 8, device=device) for _ in range(3))
    large, other = (torch.ones(64, 1024, device=device) for _ in range(2))
    return {
        "add_": lambda: x.add_(y),
        "add_ of more than one core": lambda: large.add_(other),
        "add, out": lambda: torch.add(x, y, out=out),
        "mm, out": lambda: torch.mm(x, y, out=out),
        "copy_": lambda: x.copy_(y),
        "add": lambda: torch.add(x, y),
        "relu": lambda: torch.relu(x),
        "softmax": lambda: torch.softmax(x, -1),
        "empty": lambda: torch.empty(8, 8, device=device),
        "view": lambda: x.view(64),
    }

def turn(call, device):
    before = [counter() for counter in counters]
    for _ in range(100):
        call()
    after = [counter() for counter in counters]
    if device == "npu":
        torch.npu.synchronize()
    return [b - a for a, b in zip(before, after)]

def counted(call, device):
    # The second: the first one notes the lines and shapes.
    return [turn(call, device) for _ in range(2)][1]

found = {}
with torch.no_grad():
    for device in ("cpu", "npu"):
        for name, call in calls_of(device).items():
            found.setdefault(name, []).append(counted(call, device))
print(json.dumps(found))
"""
)

# Some thousands of lines, each with a stack of its own, beside one that is always
# the same: among so many, some share their place in any table of some hundreds.
TURNS = (
    COUNTERS
    + """
x = torch.ones(8, 8, device="npu")
fixed = lambda: x.add_(1)
lines = eval("[" + "lambda: x.mul_(1)," * 4000 + "]")

def locks_of(line):
    before = counters[1]()
    for _ in range(4):
        line(), fixed()
    after = counters[1]()
    torch.npu.synchronize()
    return after - before

# The second time: at its first, a stack is noted.
locks = [[locks_of(line) for _ in range(2)][1] for line in lines]
print(json.dumps(sorted(set(locks))))
"""
)


@pytest.fixture
def counting(tmp_path: Path) -> dict[str, str]:
    """The environment of a process whose allocations and locks are counted."""
    source = Path(preload.__file__).with_name("counted_calls.cpp")
    # The sanitizer notes each access, and takes memory for it.
    return {
        "LD_PRELOAD": str(preload.build(source, tmp_path)),
        "TORCH_NPU_SANITIZER": "0",
    }


def test_an_operator_takes_no_lock_and_no_memory_beyond_torch_s_own(
    fresh_python, counting
):
    found = json.loads(fresh_python(COUNT, **counting).stdout)

    assert len(found) == 10
    for name, ((cpu_memory, cpu_locks), (memory, locks)) in found.items():
        assert memory <= cpu_memory and locks <= cpu_locks, (name, found[name])
        # The counter counts: who makes a tensor asks for memory.
        makes_a_tensor = name in ("add", "relu", "softmax", "empty", "view")
        assert (memory > 0) == makes_a_tensor, (name, found[name])


def test_lines_that_take_turns_do_not_push_each_other_out(fresh_python, counting):
    [locks] = json.loads(fresh_python(TURNS, **counting).stdout)

    assert locks > 0
