"""Graphs of several devices: each replays on its own, whichever is current."""

import pytest

# LONG: long enough that what nothing orders is seen to be out of order.
BEGIN = """
import copy, torch, npu_dispatch
LONG = 3 << 20
def busy(device):
    x = torch.zeros(LONG, device=f"npu:{device}")
    for _ in range(20):
        x.sin_()
from tests.graphs.captured import captured
"""

CURRENT = """
x = torch.zeros(64, device="npu:0")
graph, y = captured(lambda: x + 1)
torch.npu.set_device(1)
busy(1)
x.fill_(2)
graph.replay()
assert y.tolist() == [3.0] * 64
"""

MEMORY = """
host = torch.arange(LONG, dtype=torch.float32)
want = ((host + 1) * 2).sin().sum()
for device in (0, 1):
    with torch.npu.device(device):
        x = host.to(f"npu:{device}")
        graph, y = captured(lambda: ((x + 1) * 2).sin().sum())
    with torch.npu.device(1 - device):
        busy(1 - device)
        graph.replay()
        del graph
        again = torch.zeros(LONG, device=f"npu:{device}")
    torch.testing.assert_close(y.cpu(), want)
    assert not again.any()
"""

CAPTURE_STREAMS = """
for device in (0, 1, 0):
    with torch.npu.device(device):
        x = torch.full((8,), float(device), device="npu")
        graph, y = captured(lambda: x * 2)
        x.fill_(5)
        graph.replay()
        assert y.device == torch.device("npu", device)
        assert y.tolist() == [10.0] * 8
"""

GIVEN_STREAM = """
x = torch.ones(8, device="npu:1")
graph, y = captured(lambda: x + 1, stream=torch.npu.Stream(1))
x.fill_(4)
graph.replay()
assert graph.device() == 1 and y.tolist() == [5.0] * 8
"""

UPDATE = """
with torch.npu.device(1):
    x = torch.ones(8, device="npu")
    add = lambda: torch.add(x, x, alpha=1)
    graph, y = captured(add, auto_dispatch_capture=True)
graph.update([{"alpha": 3}])
graph.replay()
assert y.tolist() == [4.0] * 8
"""

REFUSED = """
x = torch.ones(8, device="npu:0")
graph = torch.npu.NPUGraph()
with torch.npu.graph(graph):
    stream = torch.npu.current_stream()
    torch.npu.graph_task_group_begin(stream)
    y = x * 2
    handle = torch.npu.graph_task_group_end(stream)
try:
    torch.npu.graph_task_update_begin(torch.npu.Stream(1), handle)
except RuntimeError as error:
    assert "captured on npu:0; update it on a stream" in str(error), error
else:
    raise AssertionError
graph.replay()
assert y.tolist() == [2.0] * 8
"""

COMPILED = """
function = torch.compile(lambda x: x.sin() + x, mode="reduce-overhead")
for i in range(5):
    for device in (0, 1):
        x = torch.full((16,), float(i + device))
        with torch.npu.device(device):
            got = function(x.to(f"npu:{device}"))
        torch.testing.assert_close(got.cpu(), x.sin() + x)
"""

GRADIENTS = """
from torch import nn
host = nn.Linear(4, 4)
for device in (0, 1):
    with torch.npu.device(device):
        net = copy.deepcopy(host).npu()
        torch.npu.make_graphed_callables(net, (torch.zeros(2, 4, device="npu"),))
    held, want = [], []
    with torch.npu.device(1 - device):
        for k in (1.0, 5.0):
            x = torch.full((2, 4), k)
            want += torch.autograd.grad(host(x).sum(), host.weight)
            held += torch.autograd.grad(net(x.to(f"npu:{device}")).sum(), net.weight)
    torch.testing.assert_close([g.cpu() for g in held], want)
"""

STEP = """
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
x, y = torch.randn(32, 8), torch.randn(32, 1)
def losses(device):
    own = copy.deepcopy(model).to(device)
    step = npu_dispatch.compile_step(
        own, torch.optim.SGD(own.parameters(), lr=0.1), nn.MSELoss(), backend="eager"
    )
    found = [step(x, y).item() for _ in range(8)]
    assert step.replays, step
    return found
# The process's first capture is on npu:0.
torch.testing.assert_close(losses("npu:0"), losses("npu:1"))
"""
PROGRAMS = {
    "another device is current": CURRENT,
    "the graph goes while another device is current": MEMORY,
    "captures of both devices": CAPTURE_STREAMS,
    "a stream of another device is given": GIVEN_STREAM,
    "numbers are updated": UPDATE,
    "an update on another device is refused": REFUSED,
    "gradients of make_graphed_callables": GRADIENTS,
    "compile_step": STEP,
    "compiled functions": COMPILED,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_graph_stays_on_its_device(python, name):
    python(BEGIN + PROGRAMS[name], NPU_DISPATCH_DEVICES="2")
