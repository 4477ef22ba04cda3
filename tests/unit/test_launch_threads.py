"""A kernel has as many threads as the thread that launches it, as on cpu."""

import pytest

# An operator that notes how many threads its cpu kernel has, and its new stream,
# whose launcher starts at the first task.
BEGIN = """
import threading
import torch

@torch.library.custom_op("test::threads", mutates_args=(), device_types="cpu")
def threads(x: torch.Tensor) -> torch.Tensor:
    seen.append(torch.get_num_threads())
    return x.clone()

threads.register_fake(lambda x: torch.empty_like(x))

def on_thread(do, *args):
    thread = threading.Thread(target=do, args=args)
    thread.start()
    thread.join()

torch.set_num_threads(3)
seen = []
x = torch.ones(100_000, device="npu")
threads(x)  # the first call of a kind may run on its caller
torch.npu.synchronize()
assert seen == [3]
seen.clear()
"""
END = """
torch.npu.synchronize()
print(*seen)
"""

ANOTHER_THREADS_NUMBER = """
on_thread(torch.set_num_threads, 1)  # of that thread, and of those that come
for stream in torch.npu.current_stream(), torch.npu.Stream():
    with torch.npu.stream(stream):
        threads(x)
"""
LATER = """
for number in 2, 4, 2:
    torch.set_num_threads(number)
    threads(x)
"""
HELD_BACK = """
gate = threading.Event()
torch.npu.current_stream().submit(gate.wait)
for number in 4, 2:
    torch.set_num_threads(number)
    threads(x)
gate.set()
"""
TWO_CALLERS = """
def call(number):
    torch.set_num_threads(number)
    threads(x)

threads(x)
on_thread(call, 2)
threads(x)
"""
REPLAY = """
graph = torch.npu.NPUGraph()
with torch.npu.graph(graph):
    threads(x)
torch.set_num_threads(2)
graph.replay()
threads(x)
"""
DIRECT = """
with torch.npu.stream(torch.npu.SyncLaunchStream()):
    threads(x)
    torch.set_num_threads(2)
    threads(x)
"""
PYTHON = """
gate = threading.Event()
stream = torch.npu.Stream()
stream.submit(gate.wait)
stream.submit(lambda: seen.append(torch.get_num_threads()))
torch.set_num_threads(2)
gate.set()
stream.submit(lambda: seen.append(torch.get_num_threads()))
"""
LAUNCHED_BY_A_TASK = """
stream = torch.npu.Stream()
stream.submit(threads, x)
on_thread(torch.set_num_threads, 1)
with torch.npu.stream(stream):
    threads(x)
"""


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        pytest.param(ANOTHER_THREADS_NUMBER, "3 3", id="another-threads-number"),
        pytest.param(LATER, "2 4 2", id="later"),
        pytest.param(HELD_BACK, "4 2", id="held-back"),
        pytest.param(TWO_CALLERS, "3 2 3", id="two-callers"),
        pytest.param(REPLAY, "3 2", id="replay"),
        pytest.param(DIRECT, "3 2", id="direct"),
        pytest.param(PYTHON, "3 2", id="python"),
        pytest.param(LAUNCHED_BY_A_TASK, "3 3", id="launched-by-a-task"),
    ],
)
def test_a_kernel_has_the_threads_of_its_launch(python, program, expected):
    assert python(BEGIN + program + END).stdout == expected + "\n"


def test_a_loader_that_pins_leaves_kernels_their_threads(python):
    # Its thread that pins asks for one thread, for itself. A gradient is summed in
    # as many parts as there are threads.
    program = """
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
for _ in DataLoader(TensorDataset(x), num_workers=1, pin_memory=True):
    pass
with torch.npu.stream(torch.npu.Stream()):
    print(*(torch.equal(gradient("npu"), expected) for _ in range(3)))
"""
    assert python(program).stdout == "True True True\n"
