"""How many threads kernels get: those of the launch, whatever other streams do."""

import os

import pytest

# An operator whose cpu kernel notes how many threads OpenMP would give it.
OPERATOR = """
import sys, threading
import torch
seen, meet = [], lambda: None
@torch.library.custom_op("test::threads", mutates_args=(), device_types="cpu")
def threads(x: torch.Tensor) -> torch.Tensor:
    meet()
    seen.append(torch.get_num_threads())
    meet()
    return x.clone()
"""
QUEUED = "threads.register_fake(lambda x: torch.empty_like(x))\n"
# The kernels of all streams meet before and after each notes its threads.
TOGETHER = """
streams, elements = map(int, sys.argv[1:3])
torch.set_num_threads(4)
x = torch.ones(elements, device="npu")
every = [torch.npu.Stream() for _ in range(streams)]
exec("; ".join(sys.argv[3:]))
def on_each(n):
    for stream in every:
        with torch.npu.stream(stream):
            for _ in range(n):
                threads(x)
torch.npu.synchronize()
on_each(2)  # the first call of a kind may wait for its result
torch.npu.synchronize()
launched, barrier = threading.Event(), threading.Barrier(streams)
def meet():
    launched.wait(60)  # no stream is out of work before the others begin
    barrier.wait(60)
on_each(2)
launched.set()
torch.npu.synchronize()
print(*seen[-streams:])
assert torch.get_num_threads() == 4  # the program's own stay
"""


def threads_seen(
    python, streams: int, elements: int, *preparation: str, **changes: str
):
    program = OPERATOR + QUEUED + TOGETHER
    out = python(program, str(streams), str(elements), *preparation, **changes)
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
def test_a_kernel_gets_its_cores(python, streams, elements, cores, expected):
    changes = {"NPU_DISPATCH_CORES": cores} if cores else {}

    assert threads_seen(python, streams, elements, **changes) == expected


def test_a_rank_has_its_part_of_the_cores(python):
    def seen(**changes: str) -> int:
        [threads] = threads_seen(python, 1, 100_000, **changes)
        return threads

    # Of more of them than any machine has cores, each has one.
    assert seen(LOCAL_WORLD_SIZE="4096") == 1
    assert seen(LOCAL_WORLD_SIZE="4096", NPU_DISPATCH_CORES="3") == 3
    assert seen(LOCAL_WORLD_SIZE="4096", NPU_DISPATCH_CORES="0") == 1  # refused
    assert seen(LOCAL_WORLD_SIZE="1") == 4
    # Fewer than half where a quota of CPU time keeps fewer busy.
    half = max(1, min(4, len(os.sched_getaffinity(0)) // 2))
    assert 1 <= seen(LOCAL_WORLD_SIZE="2") <= half


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


# The calling thread's number is 3, and the first call of the kind is made.
BEGIN = """
def on_thread(do, *args):
    thread = threading.Thread(target=do, args=args)
    thread.start()
    thread.join()
torch.set_num_threads(3)
x = torch.ones(100_000, device="npu")
threads(x)
torch.npu.synchronize()
seen.clear()
"""
END = """
torch.npu.synchronize()
print(*seen)
"""
# What is called, and how many threads each kernel has.
LAUNCHES = {
    "another thread's number": (
        "3 3",
        """
on_thread(torch.set_num_threads, 1)  # of that thread, and of those that come
for stream in torch.npu.current_stream(), torch.npu.Stream():
    with torch.npu.stream(stream):
        threads(x)
""",
    ),
    "later": (
        "2 4 2",
        """
for number in 2, 4, 2:
    torch.set_num_threads(number)
    threads(x)
""",
    ),
    "held back": (
        "4 2",
        """
gate = threading.Event()
torch.npu.current_stream().submit(gate.wait)
for number in 4, 2:
    torch.set_num_threads(number)
    threads(x)
gate.set()
""",
    ),
    "two callers": (
        "3 2 3",
        """
def call(number):
    torch.set_num_threads(number)
    threads(x)
threads(x)
on_thread(call, 2)
threads(x)
""",
    ),
    "replay": (
        "3 2",
        """
graph = torch.npu.NPUGraph()
with torch.npu.graph(graph):
    threads(x)
torch.set_num_threads(2)
graph.replay()
threads(x)
""",
    ),
    "direct": (
        "3 2",
        """
with torch.npu.stream(torch.npu.SyncLaunchStream()):
    threads(x)
    torch.set_num_threads(2)
    threads(x)
""",
    ),
    "python": (
        "3 2",
        """
gate = threading.Event()
stream = torch.npu.Stream()
stream.submit(gate.wait)
stream.submit(lambda: seen.append(torch.get_num_threads()))
torch.set_num_threads(2)
gate.set()
stream.submit(lambda: seen.append(torch.get_num_threads()))
""",
    ),
    "launched by a task": (
        "3 3",
        """
stream = torch.npu.Stream()
stream.submit(threads, x)
on_thread(torch.set_num_threads, 1)
with torch.npu.stream(stream):
    threads(x)
""",
    ),
}


@pytest.mark.parametrize("name", LAUNCHES)
def test_a_kernel_has_the_threads_of_its_launch(python, name):
    expected, calls = LAUNCHES[name]

    said = python(OPERATOR + QUEUED + BEGIN + calls + END).stdout

    assert said == expected + "\n"


def test_a_kernel_that_its_caller_runs_has_the_launchers_threads(python):
    calls = """
threads(x)  # nothing can infer its result
torch.npu.set_device_limit(0, 1)
threads(x)
print(torch.get_num_threads())
"""
    assert python(OPERATOR + BEGIN + calls + END).stdout.split() == ["3", "3", "1"]


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


# A gradient is summed in parts, one for each thread. From the second on it uses buffers
# that were kept of the one before.
GRADIENT = """
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
def gradient(device):
    leaf = w.to(device).detach().clone().requires_grad_()
    F.conv2d(x.to(device), leaf, padding=1).square().sum().backward()
    return leaf.grad.cpu()
torch.set_num_threads(2)
x, w = torch.rand(2, 64, 40, 40), torch.rand(64, 64, 3, 3)
expected = gradient("cpu")
"""
COMPARE = "print(*(torch.equal(gradient('npu'), expected) for _ in range(3)))"


@pytest.mark.parametrize(
    "before",
    [
        # The first call of the operator has the threads of later ones.
        "torch.npu.set_stream(torch.npu.SyncLaunchStream())\nx.npu()[0, 0, 0] + 1",
        # The loader's thread that pins asks for one thread, for itself.
        """
for _ in DataLoader(TensorDataset(x), num_workers=1, pin_memory=True):
    pass
torch.npu.set_stream(torch.npu.Stream())
""",
    ],
    ids=["first call", "pinning loader"],
)
def test_a_gradient_is_summed_in_as_many_parts_as_on_cpu(python, before):
    assert python(GRADIENT + before + "\n" + COMPARE).stdout == "True True True\n"


# On cpu MKL, within torch's own parallel loop, computes wrong numbers or never ends
# after torch.set_num_threads(): it counts on threads which a member of an OpenMP team
# does not have.
FACTORISES = """
import numpy, torch
torch.set_num_threads(2)
matrices = torch.rand(16, 200, 200, generator=torch.Generator().manual_seed(0))
matrices += 10 * torch.eye(200)
expected = numpy.linalg.inv(matrices.numpy())
x = matrices.npu()
# OpenMP's other threads have run kernels, and got torch's number.
(x @ x).softmax(-1).sum().item()
right = []
def check(inverses):
    right.append(numpy.allclose(inverses.cpu().numpy(), expected, atol=1e-5))
"""
FACTORISED = {
    "queued": """
for _ in range(3):  # the first call of a kind may run on its caller
    check(torch.linalg.inv(x))
""",
    "other-stream": """
with torch.npu.stream(torch.npu.Stream()):
    for _ in range(3):
        check(torch.linalg.solve(x, torch.eye(200, device="npu").expand_as(x)))
""",
    "others": """
lu, pivots = torch.linalg.lu_factor(x)
check(torch.linalg.lu_solve(lu, pivots, torch.eye(200, device="npu").expand_as(x)))
signs, logs = torch.linalg.slogdet(x)
expected_logs = numpy.linalg.slogdet(matrices.numpy())[1]
right.append(numpy.allclose(logs.cpu().numpy(), expected_logs, atol=1e-3))
P, L, U = torch.linalg.lu(x)
right.append(torch.allclose((P @ L @ U).cpu(), matrices, atol=1e-4))
scaled = matrices.numpy() / 15
right.append(numpy.allclose(torch.linalg.det(x / 15).cpu().numpy(),
                            numpy.linalg.det(scaled), rtol=1e-3))
""",
    "blocking": """
with torch.npu.launch_blocking():
    check(torch.linalg.inv(x))
with torch.npu.stream(torch.npu.SyncLaunchStream()):
    check(torch.linalg.inv(x))
""",
    "replayed": """
torch.linalg.inv_ex(x)
graph = torch.npu.NPUGraph()
with torch.npu.graph(graph):
    inverses, _ = torch.linalg.inv_ex(x)
for _ in range(3):
    graph.replay()
    check(inverses)
""",
}


@pytest.mark.parametrize("calls", FACTORISED.values(), ids=FACTORISED)
@pytest.mark.parametrize("told", ["torch.set_num_threads(2)", ""], ids=["told", "free"])
def test_inverses_are_those_of_numpy(python, calls, told):
    program = FACTORISES.replace("torch.set_num_threads(2)", told)
    assert python(program + calls + "print(set(right))").stdout == "{True}\n"


def test_a_custom_kernel_that_factorises_is_as_on_cpu(python):
    calls = """
stream = torch.npu.Stream()
stream.submit(lambda: check(torch.linalg.inv(matrices)))
stream.synchronize()
print(right)
"""
    program = FACTORISES.replace("torch.set_num_threads(2)", "")
    assert python(program + calls).stdout == "[True]\n"


def test_a_norm_is_summed_in_as_many_parts_as_on_cpu(python):
    program = """
import torch
torch.set_num_threads(2)
x = torch.rand(8, 300, 300, generator=torch.Generator().manual_seed(0))
expected = torch.linalg.vector_norm(x)
print({torch.equal(torch.linalg.vector_norm(x.npu()).cpu(), expected) for _ in "123"})
"""
    assert python(program).stdout == "{True}\n"
