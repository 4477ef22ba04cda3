"""Known calls are given up when there are too many, and no sooner than may be."""

from pathlib import Path

import heap
import pytest

# Calls that share nothing a cache could be keyed by: operator, dtype and rank
# differ, and so do shapes.
PROGRAM = """
import itertools, torch
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


def test_a_queued_task_keeps_its_plan(fresh_python):
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

    assert fresh_python(code, MALLOC_PERTURB_="165").stdout == "112\n"


SUPPORT = str(Path(heap.__file__).parent)
IN_USE = f"""
import sys, threading, torch
sys.path.append({SUPPORT!r})
from heap import in_use
"""


@pytest.mark.libc_heap
def test_all_threads_share_a_bound_and_give_it_back(python):
    """Twelve with 8,000 shapes each would keep 48 MB."""
    code = (
        IN_USE
        + """
THREADS = 12
x = torch.ones(THREADS * 8000 + 1, device="npu")
all_made, go_on = threading.Barrier(THREADS + 1), threading.Barrier(THREADS + 1)
all_launch = threading.Barrier(THREADS)
def calls(thread):
    torch.sum(x)
    all_launch.wait()  # a share is that of the threads that launch
    for size in range(8000 * thread, 8000 * (thread + 1)):
        torch.sum(x[: size + 1])
        if size % 64 == 0:
            torch.npu.synchronize()  # queued tasks keep plans that were given up
    all_made.wait()
    go_on.wait()
torch.sum(x)
before = in_use()
threads = [threading.Thread(target=calls, args=(n,)) for n in range(THREADS)]
for thread in threads:
    thread.start()
all_made.wait()
held = in_use()
go_on.wait()
for thread in threads:
    thread.join()
print(held - before, flush=True)
# What a thread has of C++ goes a moment after Python's part of it.
while in_use() - before > 4 << 20:
    pass
print("given back")
"""
    )

    held, back = python(code, TORCH_NPU_SANITIZER="0").stdout.split("\n", 1)
    assert int(held) < 24 << 20
    assert back == "given back\n"
