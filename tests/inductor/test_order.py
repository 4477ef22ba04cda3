"""Compiled code among streams, events, graphs and devices."""

import copy

import pytest
import torch
from held_stream import Held
from torch import nn


def test_streams_and_events_in_compiled_functions_break_graphs_and_work():
    def function(x, stream, event):
        y = x * 2
        event.record()
        with torch.npu.stream(stream):
            stream.wait_event(event)
            z = y.sin() + 1
            event.record(stream)
        event.wait(torch.npu.current_stream())
        own = torch.npu.Event()
        own.record()
        own.synchronize()
        stream.wait_stream(torch.npu.current_stream())
        torch.npu.current_stream().wait_stream(stream)
        return z * 2

    x = torch.randn(8)
    compiled = torch.compile(function)

    for _ in range(2):
        got = compiled(x.npu(), torch.npu.Stream(), torch.npu.Event())
        torch.testing.assert_close(got.cpu(), (x * 2).sin().add(1) * 2)


def test_work_goes_to_the_callers_stream_and_behind_what_is_there():
    function = torch.compile(lambda x: x * 2 + 1)
    x = torch.ones(100).npu()
    function(x)
    stream = torch.npu.Stream()
    torch.npu.synchronize()

    with torch.npu.stream(stream), Held(stream):
        x.add_(1)
        y = function(x)
        assert torch.npu.default_stream().query()
        assert not stream.query()
    stream.synchronize()
    assert y.cpu().tolist() == [5.0] * 100


def test_another_device_is_the_one_of_the_tensors(python):
    code = """
import torch
def function(x, s):
    return (s * x.sin() + 1).sum(-1) + torch.zeros(x.shape[0], device=x.device)
compiled = torch.compile(function)
x, s = torch.randn(4, 5), torch.tensor(3.0)
for device in ("npu:1", "npu:0", "npu:1"):
    y = compiled(x.to(device), s)
    torch.testing.assert_close(y.cpu(), function(x, s))
    print(y.device)
print(torch.npu.memory_allocated(0), torch.npu.current_device())
"""
    result = python(code, NPU_DISPATCH_DEVICES="2")

    assert result.stdout.splitlines() == ["npu:1", "npu:0", "npu:1", "0 0"]


@pytest.mark.parametrize("graphed", [False, True], ids=["calls", "one graph"])
def test_a_compiled_step_captured_in_a_graph_is_cpus(graphed):
    torch.manual_seed(0)
    cpu = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    npu = copy.deepcopy(cpu).npu()
    compiled = torch.compile(npu)
    x = torch.randn(6, 8)
    here = x.npu()
    theirs = torch.optim.Adam(cpu.parameters(), foreach=True)
    ours = torch.optim.Adam(npu.parameters(), foreach=True, capturable=True)

    def step(model, optimizer, x):
        optimizer.zero_grad(set_to_none=False)
        model(x).square().sum().backward()
        optimizer.step()

    for _ in range(7):
        step(cpu, theirs, x)
    for _ in range(3):
        step(compiled, ours, here)
    graph = torch.npu.NPUGraph()
    if graphed:
        with torch.npu.graph(graph):
            step(compiled, ours, here)
    for _ in range(4):
        graph.replay() if graphed else step(compiled, ours, here)

    ours, theirs = list(npu.parameters()), list(cpu.parameters())
    close = {"rtol": 1e-4, "atol": 1e-5, "check_device": False}
    torch.testing.assert_close(ours, theirs, **close)
