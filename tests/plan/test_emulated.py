"""The emulated device: times against the formulas of its spec, and what it gives
back. Times are those of its own clock, which timing events show."""

import json

import pytest
from interpreter import Spawned

# Behind a long task, so that the device is never without work between events.
TIMED = """
import json, torch
from npu_dispatch import _C
def once(work):
    start, end = (torch.npu.Event(enable_timing=True) for _ in range(2))
    torch.npu._sleep(40_000_000)
    start.record()
    work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3  # us
def timed(work):
    # A host that has lost its core leaves the device without work: longer times only.
    return min(once(work) for _ in range(3))
"""


DEVICE = {"gib": 4, "memory": 100, "fp32": 2, "kernel": 3, "copy": 20}


@pytest.fixture
def result(python: Spawned, spec):
    """result(code, memory=50): what it prints on a device with these numbers."""

    def run(code: str, more: str = "", **numbers: float):
        env = {"NPU_DRIVER": "emulated"}
        env["NPU_EMULATED_SPEC"] = spec(more, **DEVICE | numbers)
        return json.loads(python(TIMED + code, **env).stdout.splitlines()[-1])

    return run


def test_times_follow_from_the_spec(result) -> None:
    code = """
n = 1024
a, b, c = (torch.ones(n, n, device="npu") for _ in range(3))
h = torch.ones(n, n, device="npu", dtype=torch.float16)
host, x = torch.ones(1 << 20).pin_memory(), torch.ones(1 << 20, device="npu")
torch.mm(a, b, out=c); torch.mm(h, h); torch.add(a, b, out=c)
def empty():
    for _ in range(1000): _C.submit_nothing()
print(json.dumps([
    timed(lambda: torch.mm(a, b, out=c)),
    timed(lambda: torch.mm(h, h)),
    timed(lambda: torch.add(a, b, out=c)),
    timed(lambda: x.copy_(host, non_blocking=True)),
    timed(lambda: host.copy_(x, non_blocking=True)),
    timed(empty),
]))
"""
    found = result(code)
    n = 1024
    expected = [
        3 + 2 * n**3 / 2e6,  # FLOP by 2 TFLOP/s
        3 + 3 * 2 * n**2 / 100e3,  # bytes take longer than FLOP by 40 TFLOP/s
        3 + 3 * 4 * n**2 / 100e3,  # two read, one written, by 100 GB/s
        20 + 4 * 2**20 / 10e3,
        20 + 4 * 2**20 / 10e3,
        3 * 1000,
    ]
    assert found == pytest.approx(expected, rel=0.02)


def test_convolutions_and_lstm_layers_reach_a_stated_part(result) -> None:
    code = """
x, w = torch.ones(8, 64, 64, 64, device="npu"), torch.ones(64, 64, 3, 3, device="npu")
layer = torch.nn.LSTM(512, 512, device="npu")
y = torch.ones(16, 64, 512, device="npu")
with torch.no_grad():
    layer(y), torch.conv2d(x, w, padding=1)
    print(json.dumps([
        timed(lambda: torch.conv2d(x, w, padding=1)), timed(lambda: layer(y))
    ]))
"""
    parts = "[efficiency]\nconvolution = 0.5\nrecurrent = 0.25\n"
    found = result(code, more=parts)
    convolution = 2 * 8 * 64 * 64**2 * 64 * 9
    lstm = 2 * 16 * 64 * 2 * 4 * 512 * 512
    assert found[0] == pytest.approx(3 + convolution / 1e6, rel=0.02)
    # Its bias and the state's copies are tasks of their own.
    assert found[1] == pytest.approx(3 + lstm / 0.5e6, rel=0.05)


def test_nothing_is_computed_and_zeros_are_read(result) -> None:
    code = """
x = torch.full((1000,), 7.0, device="npu")
pinned = torch.full((1000,), 5.0).pin_memory()
gaps = torch.full((1000, 2), 5.0)
pinned.copy_(x, non_blocking=True)
gaps[:, 0].copy_(x)
torch.npu.synchronize()
print(json.dumps([
    x.sum().item(), x.cpu().abs().max().item(), pinned.abs().max().item(),
    gaps[:, 0].abs().max().item(), gaps[:, 1].min().item(), bool((x > 1).any()),
    x.tolist()[:2], len(x.nonzero()),
]))
"""
    assert result(code) == [0, 0, 0, 0, 5, False, [0, 0], 0]


def test_results_of_operators_that_wait_are_zeros_too(result) -> None:
    """In all ways to read them: an operator's own result, an argument that it writes
    or resizes, and what another operator makes of it."""
    code = """
x = torch.full((64, 10), 7.0, device="npu")
_, counts = torch.unique(x, return_counts=True)
edges, held = torch.ones(2, 3, device="npu").unbind()
torch.histogram(x, 2, range=(1.0, 2.0), out=(torch.ones(2, device="npu"), edges))
grown = torch.empty(0, dtype=torch.long, device="npu")
torch.nonzero(x, out=grown)
found = torch.bincount(torch.ones(9, dtype=torch.long, device="npu"), minlength=2)
print(json.dumps([
    [int(counts), counts.tolist(), torch.equal(counts, counts * 0)],
    [edges.tolist(), edges[2].item(), held.tolist(), list(grown.shape)],
    [found.tolist(), found[0].item(), len(found.nonzero()), bool(found.any())],
]))
"""
    assert result(code) == [
        [0, [0], True],
        [[0, 0, 0], 0, [0, 0, 0], [0, 2]],
        [[0, 0], 0, 0, False],
    ]


def test_memory_ends_where_the_spec_says(result) -> None:
    code = """
gib = 1 << 30
held = [torch.empty(gib, dtype=torch.uint8, device="npu") for _ in range(39)]
try:
    held.append(torch.empty(2 * gib, dtype=torch.uint8, device="npu"))
    refused = False
except torch.OutOfMemoryError:
    refused = True
total = torch.npu.get_device_properties(0).total_memory
print(json.dumps([refused, total / gib, torch.npu.mem_get_info()[1] / gib]))
"""
    assert result(code, gib=40) == [True, 40, 40]


def test_many_streams_share_one_device(result) -> None:
    """64 streams end, in order, in no less than the time of all their work."""
    code = """
import time
n = 512
a = torch.ones(n, n, device="npu")
streams = [torch.npu.Stream() for _ in range(64)]
a @ a
torch.npu.synchronize()
first = time.monotonic()
for _ in range(4):
    for stream in streams:
        with torch.npu.stream(stream):
            a @ a
torch.npu.synchronize()
print(json.dumps(time.monotonic() - first))
"""
    seconds = result(code, fp32=0.2)
    assert seconds >= 256 * 2 * 512**3 / 0.2e12


def test_operations_are_those_that_torch_counts(result) -> None:
    code = """
import numpy as np
import torch.nn.functional as F
from npu_dispatch.plan.simulate import ENTRY, Act
from torch.utils.flop_counter import FlopCounterMode
def cases(device):
    def new(*sizes): return torch.ones(*sizes, device=device, requires_grad=True)
    a, b, c = new(6, 7), new(7, 8), new(6, 8)
    p, q, r = new(3, 6, 7), new(3, 7, 8), new(3, 6, 8)
    x, w, v = new(2, 3, 12, 10), new(4, 3, 3, 2), new(3, 4, 3, 2)
    square, even = new(2, 4, 6, 5), new(4, 4, 3, 2)
    line, filters = new(2, 3, 20), new(5, 3, 4)
    query, key, value = new(2, 3, 16, 8), new(2, 3, 24, 8), new(2, 3, 24, 8)
    return {
        "mm": lambda: a @ b,
        "addmm": lambda: torch.addmm(c, a, b),
        "linear": lambda: F.linear(p, b.t(), b.sum(0)),
        "bmm": lambda: torch.bmm(p, q),
        "baddbmm": lambda: torch.baddbmm(r, p, q),
        "conv2d": lambda: F.conv2d(x, w, stride=2, padding=1),
        "conv1d": lambda: F.conv1d(line, filters, filters.sum((1, 2))),
        "transposed": lambda: F.conv_transpose2d(x, v, stride=2),
        "of equal channels": lambda: F.conv2d(square, even, padding=1),
        "transposed, equal channels": lambda: F.conv_transpose2d(
            square, even, stride=2),
        "sdpa": lambda: F.scaled_dot_product_attention(query, key, value),
    }
counted = {}
for name, call in cases("cpu").items():
    with FlopCounterMode(display=False) as counter:
        out = call()
    forward = counter.get_total_flops()
    with FlopCounterMode(display=False) as counter:
        out.sum().backward()
    counted[name] = [forward, counter.get_total_flops()]
def recorded(call):
    _C.plan_start("", 1.0)
    out = call()
    program = _C.plan_stop()
    works = program.works
    launched = [e["what"] for e in np.frombuffer(program.entries, ENTRY)
                if e["act"] == Act.LAUNCH]
    return out, sum(works[what]["flops"] for what in launched)
emulated = {}
for name, call in cases("npu").items():
    out, forward = recorded(call)
    _, backward = recorded(lambda: out.sum().backward())
    emulated[name] = [forward, backward]
# Of cpu's attention torch counts nothing: the formulas themselves.
from torch.utils import flop_counter as f
q, k, g = (2, 3, 16, 8), (2, 3, 24, 8), (2, 3, 16, 8)
counted["sdpa"] = [f.sdpa_flop_count(q, k, k), f.sdpa_backward_flop_count(g, q, k, k)]
print(json.dumps([counted, emulated]))
"""
    counted, emulated = result(code)
    assert emulated == counted
    assert all(forward > 0 and backward > 0 for forward, backward in counted.values())


def test_products_of_narrow_inputs_are_made_at_the_rate_of_int8(result) -> None:
    code = """
a = torch.ones(512, 512, dtype=torch.int8, device="npu")
b, one = a.to(torch.float8_e4m3fn), torch.ones((), device="npu")
def scaled():
    torch._scaled_mm(b, b.t(), scale_a=one, scale_b=one, out_dtype=torch.float32)
torch._int_mm(a, a), scaled()
print(json.dumps([timed(lambda: torch._int_mm(a, a)), timed(scaled)]))
"""
    took = result(code, fp32=0.001, memory=10_000)
    assert took == pytest.approx([3 + 2 * 512**3 / 80e6] * 2, rel=0.1)
