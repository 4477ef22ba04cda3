"""How many threads kernels get: never by the number of streams at work."""

import os

import pytest
import torch

# Each kernel notes how many threads OpenMP would give it, between two meetings
# with the kernels of the other streams.
PROGRAM = """
import sys, threading
import torch

streams, elements = map(int, sys.argv[1:3])
torch.set_num_threads(4)
together = None
launched = threading.Event()
seen = []

@torch.library.custom_op("test::threads", mutates_args=(), device_types="cpu")
def threads(x: torch.Tensor) -> torch.Tensor:
    if together is not None:
        launched.wait(60)  # no stream is out of work before the others begin
        together.wait(60)
    seen.append(torch.get_num_threads())
    if together is not None:
        together.wait(60)
    return x.clone()

threads.register_fake(lambda x: torch.empty_like(x))
x = torch.ones(elements, device="npu")
every = [torch.npu.Stream() for _ in range(streams)]
exec("; ".join(sys.argv[3:]))

def on_each(n):
    for stream in every:
        with torch.npu.stream(stream):
            for _ in range(n):
                threads(x)
    launched.set()
    torch.npu.synchronize()

torch.npu.synchronize()
on_each(2)  # the first call of a kind may wait for its result
launched.clear()
together = threading.Barrier(streams)
on_each(2)
print(*seen[-streams:])
assert torch.get_num_threads() == 4  # the program's own stay
"""


def threads_seen(
    python, streams: int, elements: int, *preparation: str, **changes: str
) -> list[int]:
    out = python(PROGRAM, str(streams), str(elements), *preparation, **changes)
    return [int(n) for n in out.stdout.split()]


@pytest.mark.parametrize(
    ("streams", "elements", "cores", "expected"),
    [
        (1, 100, None, [1]),
        (1, 100_000, None, [4]),
        (2, 100_000, None, [4, 4]),
        (4, 100_000, None, [4] * 4),
        (1, 100_000, "3", [3]),
        (2, 100_000, "3", [3, 3]),
    ],
)
def test_a_kernel_gets_its_cores_however_many_streams_work(
    python, streams, elements, cores, expected
):
    changes = {"NPU_DISPATCH_CORES": cores} if cores else {}

    assert threads_seen(python, streams, elements, **changes) == expected


def test_a_rank_has_its_part_of_the_cores(python):
    def seen(**changes: str) -> list[int]:
        return threads_seen(python, 1, 100_000, **changes)

    # Of more of them than any machine has cores, each has one.
    assert seen(LOCAL_WORLD_SIZE="4096") == [1]
    assert seen(LOCAL_WORLD_SIZE="4096", NPU_DISPATCH_CORES="3") == [3]
    assert seen(LOCAL_WORLD_SIZE="4096", NPU_DISPATCH_CORES="0") == [1]  # refused
    assert seen(LOCAL_WORLD_SIZE="1") == [4]


def test_a_rank_of_two_has_half_of_the_cores(python):
    (both,) = threads_seen(python, 1, 100_000, LOCAL_WORLD_SIZE="2")

    # Fewer where a quota of CPU time keeps fewer busy.
    assert 1 <= both <= max(1, min(4, len(os.sched_getaffinity(0)) // 2))


LIMIT_DEVICE = "torch.npu.set_device_limit(0, 1)"
LIMIT_STREAM = "torch.npu.set_stream_limit(every[0], vector_num=1)"


@pytest.mark.skipif(os.cpu_count() == 1, reason="one core is the limit already")
@pytest.mark.parametrize(
    ("streams", "limits", "expected"),
    [
        (1, [LIMIT_DEVICE], [1]),
        (1, [LIMIT_STREAM], [1]),
        (2, [LIMIT_STREAM], [1, 4]),
        (1, [LIMIT_STREAM, "torch.npu.reset_stream_limit(every[0])"], [4]),
    ],
)
def test_limits_of_a_device_and_of_a_stream(python, streams, limits, expected):
    assert sorted(threads_seen(python, streams, 100_000, *limits)) == expected


IN_ITS_PLACE = """
import torch

torch.set_num_threads(4)
seen = []

@torch.library.custom_op("test::alone", mutates_args=(), device_types="cpu")
def alone(x: torch.Tensor) -> torch.Tensor:  # nothing can infer its result
    seen.append(torch.get_num_threads())
    return x.clone()

x = torch.ones(100_000, device="npu")
x + x  # the launcher has its threads
torch.npu.synchronize()
alone(x)
torch.npu.set_device_limit(0, 1)
alone(x)
print(*seen, torch.get_num_threads())
"""


def test_a_kernel_that_its_caller_runs_has_the_launchers_threads(python):
    assert python(IN_ITS_PLACE).stdout.split() == ["4", "1", "4"]


BUSY = """
import threading
import torch

torch.set_num_threads(4)
host = torch.rand(6_000_001, generator=torch.Generator().manual_seed(3)) * 1e3
x = host.npu()
alone = x.sum()
torch.npu.synchronize()
gate, entered = threading.Event(), threading.Event()
def hold():
    entered.set()
    gate.wait()
torch.npu.Stream().submit(hold)
entered.wait()
beside = x.sum()
torch.npu.current_stream().synchronize()
gate.set()
print(alone.item() == host.sum().item(), beside.item() == host.sum().item())
"""


def test_a_sum_repeats_beside_a_busy_stream(python):
    assert python(BUSY).stdout.split() == ["True", "True"]


def test_a_large_kernel_on_an_idle_device_uses_what_torch_would():
    a = torch.rand(256, 256)
    assert torch.equal((a.npu() @ a.npu()).cpu(), a @ a)


IDLE_TEAM = """
from pathlib import Path
import torch

def threads():  # without those that come and go with the launches
    names = [f.read_text().strip() for f in Path("/proc/self/task").glob("*/comm")]
    return len(names) - names.count("npu-crowd")

def work():
    y @ y
    torch.npu.synchronize()

torch.set_num_threads(2)
x, y = torch.rand(1 << 22), torch.rand(1500, 1500).npu()
work()  # the launcher's team is there
expected = x.exp()
with_team = threads()
for _ in range(100):  # not at each wait: a new team costs more than an idle one
    work()
    if threads() < with_team:
        break
idle = threads()
torch.testing.assert_close(x.exp(), expected, rtol=0, atol=0)
print(idle - with_team, threads() - with_team)
"""


def test_a_thread_that_waits_for_the_device_ends_its_idle_team(python):
    assert python(IDLE_TEAM).stdout.split() == ["-1", "0"]


def test_a_direct_stream_leaves_its_callers_threads_as_they_were(python):
    # Small kernels have one thread, which the caller's own on cpu would keep, and
    # those that run on the caller because nothing can infer their shapes.
    program = """
import torch

direct = torch.npu.SyncLaunchStream()
x = torch.ones(8, device="npu")
large = torch.ones(1 << 20, device="npu")
torch.npu.synchronize()
seen = []
for threads in (4, 3):
    torch.set_num_threads(threads)
    for operand in (x, large, x):
        with torch.npu.stream(direct):
            operand + 1
        seen.append(torch.get_num_threads())
print(seen)
"""
    assert python(program).stdout == "[4, 4, 4, 3, 3, 3]\n"


def test_the_first_call_of_an_operator_has_the_threads_of_later_ones(python):
    # A gradient that is summed in parts, one for each thread.
    program = """
import torch

torch.set_num_threads(2)
x, w, g = torch.rand(2, 64, 40, 40), torch.rand(64, 64, 3, 3), torch.rand(2, 64, 40, 40)
x, w, g = x.npu(), w.npu(), g.npu()
with torch.npu.stream(torch.npu.SyncLaunchStream()):
    torch.ones(4, device="npu") + 1
arguments = None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [False, True, False]
first, *later = (
    torch.ops.aten.convolution_backward(g, x, w, *arguments)[1].cpu()
    for _ in range(3)
)
print([torch.equal(first, other) for other in later])
"""
    assert python(program).stdout == "[True, True]\n"
