"""Known calls are given up when there are too many, and no sooner than may be."""

from __future__ import annotations

import subprocess
import sys

# Calls that share nothing a cache could be keyed by: operator, dtype and rank
# differ, and so do shapes.
PROGRAM = """
import itertools, resource, sys, torch
from npu_dispatch import _C

LIMIT = 32
OPERATORS = (torch.add, torch.sub, torch.mul, torch.maximum)
DTYPES = (torch.float32, torch.float64, torch.int32, torch.int64)
KINDS = list(itertools.product(OPERATORS, DTYPES, range(1, 8)))
assert len(KINDS) > 3 * LIMIT
_C.set_plan_limit(LIMIT)

def operands(dtype, rank, device, size=2):
    shape = (size,) + (1,) * (rank - 1)
    return [torch.full(shape, n, dtype=dtype, device=device) for n in (3, 5)]
"""


def test_a_queued_task_keeps_its_plan_however_many_others_are_given_up(
    child_environment,
):
    # The allocator overwrites what is freed, so that no task could use it.
    code = (
        PROGRAM
        + """
inputs = [operands(dtype, rank, "npu") for _, dtype, rank in KINDS]
stream, gate = torch.npu.Stream(), torch.npu.ExternalEvent()
torch.npu.synchronize()
with torch.npu.stream(stream):
    gate.wait(stream)
    results = [op(*pair) for (op, _, _), pair in zip(KINDS, inputs)]
    assert not stream.query()
gate.record()  # on the default stream
stream.synchronize()
for (op, dtype, rank), result in zip(KINDS, results):
    assert torch.equal(result.cpu(), op(*operands(dtype, rank, "cpu"))), (op, dtype)
print(len(results))
"""
    )

    ended = subprocess.run(
        [sys.executable, "-c", code],
        env=child_environment(MALLOC_PERTURB_="165"),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ended.stdout, ended.returncode) == ("112\n", 0), ended.stderr


RESIDENT = """
import resource, torch

def resident():
    torch.npu.synchronize()
    pages = int(open("/proc/self/statm").read().split()[1])
    return pages * resource.getpagesize()

"""


def test_what_is_given_up_is_freed(python):
    # Without a limit each of 12,000 calls keeps 5 kB and more.
    code = (
        PROGRAM
        + RESIDENT
        + """
def calls(first, last):
    for size in range(first, last):
        a, b = operands(torch.float32, 1, "npu", size)
        torch.add(a, b, out=a)
        torch.mul(a, b, out=a)

calls(1, 1000)
before = resident()
calls(1000, 7000)
print(resident() - before)
"""
    )

    assert int(python(code).stdout) < 24 << 20


def test_calls_of_new_sizes_share_what_runs_them(python):
    """A new size costs its plan, some 500 bytes, and not the 4 kB of a frame."""
    code = (
        RESIDENT
        + """
x = torch.ones(4000, device="npu")

def calls(first, last):
    for size in range(first, last):
        torch.sum(x[:size])

calls(1, 200)
before = resident()
calls(200, 1800)
print(resident() - before)
"""
    )

    assert int(python(code, TORCH_NPU_SANITIZER="0").stdout) < 3 << 20
