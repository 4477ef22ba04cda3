"""A backward that autograd's own threads run is captured like any other."""

import pytest

BEGIN = """
import threading, torch, npu_dispatch
from torch import nn
class Noted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, backward):
        ctx.backward = backward
        return x.clone()
    @staticmethod
    def backward(ctx, grad):
        threads.add(threading.get_ident())
        ctx.backward(grad)
        return grad * 2, None
threads = set()
main = threading.get_ident()
def captured(function, mode="global", device=0):
    with torch.npu.device(device):
        function()
        graph = torch.npu.NPUGraph()
        threads.clear()
        with torch.npu.graph(graph, capture_error_mode=mode):
            result = function()
        return graph, result
def refused(function, mode):
    try:
        captured(function, mode)
    except RuntimeError as error:
        assert not torch.npu.is_current_stream_capturing()
        return str(error)
    raise AssertionError("not refused")
"""

REPLAYS = """
for device in (0, 1):
    for mode in ("global", "thread_local", "relaxed"):
        w = torch.ones(3, device=f"npu:{device}", requires_grad=True)
        def step():
            (grad,) = torch.autograd.grad(Noted.apply(w * w, lambda g: None).sum(), w)
            return grad.detach() + 1
        graph, result = captured(step, mode, device)
        assert threads and main not in threads, threads
        for i in range(3):
            with torch.no_grad():
                w.fill_(i)
            graph.replay()
            assert result.tolist() == [4.0 * i + 1] * 3
"""

# In the modes that forbid it to the capturing thread, also for work of others.
WAITS = """
x = torch.ones(3, device="npu", requires_grad=True)
waits = {
    "captured work": lambda g: g.sum().item(),
    "another stream": lambda g: other_stream.synchronize(),
}
for name, wait in waits.items():
    for mode in ("global", "thread_local", "relaxed"):
        other_stream = torch.npu.Stream()
        def step():
            if torch.npu.is_current_stream_capturing():
                Noted.apply(x * 2, wait).sum().backward()
        if mode == "relaxed" and name == "another stream":
            captured(step, mode)
            continue
        text = refused(step, mode)
        assert threads and main not in threads
        assert "is not allowed while a graph is captured" in text, text
        x.grad = None
assert x.tolist() == [1.0] * 3
"""

SIDE_STREAM = """
x = torch.ones(3, device="npu", requires_grad=True)
y = torch.zeros(3, device="npu")
side = torch.npu.Stream(priority=-1)
def on_a_side_stream(grad):
    side.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side):
        y.add_(grad)
    torch.npu.current_stream().wait_stream(side)
def step():
    torch.autograd.grad(Noted.apply(x * 2, on_a_side_stream).sum(), x)
graph, _ = captured(step)
assert threads and main not in threads
torch.npu.synchronize()
y.zero_()
graph.replay()
graph.replay()
assert y.tolist() == [2.0] * 3
"""

OTHERS_BACKWARD = """
errors = []
x = torch.ones(3, device="npu", requires_grad=True)
stream = torch.npu.Stream()
def backward(loss, gradient):
    try:
        with torch.npu.stream(stream):
            loss.backward(gradient)
    except RuntimeError as error:
        errors.append(str(error))
graph = torch.npu.NPUGraph()
with torch.npu.graph(graph, stream=stream, capture_error_mode="thread_local"):
    given = (x * 2).sum(), torch.ones((), device="npu")
    thread = threading.Thread(target=backward, args=given)
    thread.start()
    thread.join()
assert "only the thread that captures" in errors[0], errors
"""

CHECKPOINT = """
from torch.utils.checkpoint import checkpoint
x = torch.ones(8, device="npu", requires_grad=True)
def step():
    y = checkpoint(torch.tanh, x * 1, use_reentrant=True, preserve_rng_state=False)
    Noted.apply(y, lambda g: None).sum().backward()
    return y.detach(), x.grad
graph, (y, grad) = captured(step)
assert threads and main not in threads
for i in range(3):
    grad.zero_()
    with torch.no_grad():
        x.fill_(i)
    graph.replay()
    torch.testing.assert_close(grad, 2 * (1 - y * y))
"""

USERS = """
import copy
net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
host, x = copy.deepcopy(net), torch.randn(2, 3)
host(x).square().sum().backward()
graphed = copy.deepcopy(net).npu()
torch.npu.make_graphed_callables(graphed, (torch.ones(2, 3, device="npu"),))
graphed(x.npu()).square().sum().backward()
for a, b in zip(graphed.parameters(), host.parameters()):
    torch.testing.assert_close(a.grad.cpu(), b.grad)
own = copy.deepcopy(net).npu()
step = npu_dispatch.compile_step(
    own, torch.optim.SGD(own.parameters(), lr=0.1), nn.functional.mse_loss,
    backend="eager",
)
for _ in range(6):
    step(x.npu(), torch.ones(2, 3, device="npu"))
assert step.reason is None and step.replays, step
"""

PROGRAMS = {
    "modes and devices": REPLAYS,
    "waits are refused": WAITS,
    "a side stream": SIDE_STREAM,
    "of another thread": OTHERS_BACKWARD,
    "a backward in a backward": CHECKPOINT,
    "what captures for the user": USERS,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_autograds_threads_take_part_in_the_capture(python, name):
    code = BEGIN + PROGRAMS[name]
    python(code, NPU_DISPATCH_DEVICES="2", NPU_AUTOGRAD_THREADS="1")


def test_so_they_do_where_the_program_turns_them_on(python):
    switch = "torch.autograd.set_multithreading_enabled(True).__enter__()"
    python(BEGIN + switch + REPLAYS, NPU_DISPATCH_DEVICES="2")
