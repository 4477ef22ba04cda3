"""torch.npu.comm and nn.DataParallel, over three virtual devices."""

import pytest
import torch

THREE = {"NPU_DISPATCH_DEVICES": "3"}

HEAD = """
import warnings
import pytest, torch
from torch.npu import comm
npu = torch.npu
x = torch.arange(24.0).reshape(6, 4)
refused = pytest.raises
"""

CASES = {
    "broadcast": """
there = x.to("npu:1")
copies = comm.broadcast(there, ["npu:1", 0, 2])
assert [c.get_device() for c in copies] == [1, 0, 2]
assert all(torch.equal(c.cpu(), x) for c in copies) and copies[0] is there
out = [torch.empty(6, 4, device=f"npu:{i}") for i in (0, 2)]
assert comm.broadcast(there, out=out)[1] is out[1]
assert torch.equal(out[1].cpu(), x)
assert [c.get_device() for c in comm.broadcast(x, [2, 0])] == [2, 0]
assert comm.broadcast(torch.tensor([1 + 2j]), [0, 1])[1].tolist() == [[1, 2]]
refused(RuntimeError, comm.broadcast, there, [0, 1])
refused(RuntimeError, comm.broadcast, there)
refused(RuntimeError, comm.broadcast, there, [1], out=out)
refused(RuntimeError, comm.broadcast, there, out=[torch.empty(3, device="npu:0")])
refused(RuntimeError, comm.broadcast, x, [7])
""",
    "broadcast_coalesced": """
tensors = [torch.full((n,), float(n), device="npu:0") for n in range(1, 9)]
tensors.append(torch.arange(5, device="npu:0"))
for size in (1, 40, 10485760):
    lists = comm.broadcast_coalesced(tensors, [0, 1, 2], size)
    assert [len(one) for one in lists] == [9, 9, 9]
    for index, one in enumerate(lists):
        assert {t.get_device() for t in one} == {index}
        assert all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(one, tensors))
""",
    "reduce_add": """
parts = [(x * n).to(f"npu:{n}") for n in range(3)]
total = comm.reduce_add(parts, 1)
assert total.get_device() == 1 and torch.equal(total.cpu(), x * 3)
assert comm.reduce_add(parts).get_device() == 0
assert comm.reduce_add(parts[1:2], 1) is parts[1]
assert "CPU" in str(refused(AssertionError, comm.reduce_add, [x, parts[0]]).value)
refused(ValueError, comm.reduce_add, [parts[0], parts[1][:2]], 0)
refused(RuntimeError, comm.reduce_add, parts[:2], 2)
groups = [[p, p[0] + 1, p.sum()] for p in parts]
sums = comm.reduce_add_coalesced(groups, 2, 64)
assert [t.get_device() for t in sums] == [2, 2, 2]
assert torch.equal(sums[0].cpu(), x * 3)
assert torch.equal(sums[1].cpu(), x[0] * 3 + 3)
assert sums[2].item() == 3 * x.sum().item()
""",
    "scatter and gather": """
for source in (x, x.to("npu:1")):
    chunks = comm.scatter(source, [0, 1, 2])
    assert [c.get_device() for c in chunks] == [0, 1, 2]
    assert torch.equal(torch.cat([c.cpu() for c in chunks]), x)
    chunks = comm.scatter(source, [2, 0], chunk_sizes=[1, 3], dim=1)
    assert [tuple(c.shape) for c in chunks] == [(6, 1), (6, 3)]
    whole = comm.gather(chunks, dim=1, destination=1)
    assert whole.get_device() == 1 and torch.equal(whole.cpu(), x)
streams = [npu.Stream(i) for i in range(3)]
chunks = comm.scatter(x, [0, 1, 2], streams=streams)
for stream in streams:
    stream.synchronize()
assert torch.equal(comm.gather(chunks, destination="cpu"), x)
out = [torch.empty(2, 4, device="npu:0"), torch.empty(4, 4, device="npu:2")]
assert comm.scatter(x, out=out)[0] is out[0] and torch.equal(out[1].cpu(), x[2:])
back = torch.empty(6, 4, device="npu:1")
assert comm.gather(out, out=back) is back and torch.equal(back.cpu(), x)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    assert torch.equal(comm.gather(out, destination=-1), x)
assert seen[0].category is FutureWarning
with npu.device(2):
    assert comm.gather(out).get_device() == 2
refused(RuntimeError, comm.scatter, x, [0, 1], out=out)
refused(RuntimeError, comm.scatter, x, chunk_sizes=[3, 3], out=out)
refused(RuntimeError, comm.scatter, x, [0, 1], chunk_sizes=[6])
refused(RuntimeError, comm.scatter, x, out=[out[0]])
refused(RuntimeError, comm.gather, out, destination=0, out=back)
refused(RuntimeError, comm.gather, out, dim=1)
refused(RuntimeError, comm.gather, [x, x])
refused(RuntimeError, comm.gather, out, out=torch.empty(5, 4, device="npu:0"))
""",
    "memory formats": """
image = torch.arange(6 * 4 * 2 * 3.0).reshape(6, 4, 2, 3)
last = image.contiguous(memory_format=torch.channels_last)
for source in (last, last.to("npu:1")):
    copies = comm.broadcast(source, [1, 0, 2])
    chunks = comm.scatter(source, [0, 1, 2])
    assert {c.stride() for c in copies} == {last.stride()}
    assert {c.stride() for c in chunks} == {last[:2].stride()}
    assert all(torch.equal(c.cpu(), image) for c in copies)
    for place in (1, "cpu"):
        whole = comm.gather(chunks, destination=place)
        assert whole.stride() == last.stride() and torch.equal(whole.cpu(), image)
mixed = [chunks[0], chunks[1].contiguous()]
assert comm.gather(mixed).stride() == image[:4].contiguous().stride()
""",
    "order with queued work": """
side = [npu.Stream(i) for i in range(2)]
for source, target in ((0, 1), (1, 0)):
    with npu.stream(side[target]), npu.stream(side[source]):
        big = torch.zeros(1 << 20, device=f"npu:{source}")
        npu._sleep(20_000_000)
        big += 1
        [_, copy] = comm.broadcast(big, [source, target])
        del big
    side[target].synchronize()
    assert copy.sum().item() == 1 << 20
""",
    "DataParallel": """
torch.manual_seed(0)
import copy
plain = torch.nn.Sequential(
    torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
reference = copy.deepcopy(plain)
wrapped = torch.nn.DataParallel(plain.to("npu:0"))
assert wrapped.device_ids == [0, 1, 2]
y = wrapped(x.to("npu:0"))
assert y.get_device() == 0
torch.testing.assert_close(y.cpu(), reference(x))
y.square().sum().backward()
reference(x).square().sum().backward()
for a, b in zip(plain.parameters(), reference.parameters()):
    torch.testing.assert_close(a.grad.cpu(), b.grad)
with torch.no_grad():
    torch.testing.assert_close(wrapped(x).cpu(), reference(x))
""",
    "DataParallel under autocast": """
class Sees(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 2)
    def forward(self, x):
        y = self.inner(x)
        state = torch.is_autocast_enabled("npu"), torch.is_autocast_cache_enabled()
        return y, torch.tensor([state], device=x.device)
net = Sees().npu()
wrapped = torch.nn.DataParallel(net)
here = x.npu()
for dtype in (torch.bfloat16, torch.float16):
    for cached in (True, False):
        with torch.autocast("npu", dtype, cache_enabled=cached):
            y, states = wrapped(here)
            called, _ = torch.nn.parallel.data_parallel(net, here)
            with torch.autocast("npu", enabled=False):
                assert wrapped(here)[0].dtype == torch.float32
        assert y.dtype == called.dtype == dtype
        assert states.tolist() == [[True, cached]] * 3
        y.float().sum().backward()
        torch.testing.assert_close(net.inner.bias.grad.cpu(), torch.full((2,), 6.0))
        net.zero_grad()
with torch.autocast("cpu"):
    assert wrapped(here)[0].dtype == torch.float32
y, states = wrapped(here)
assert y.dtype == torch.float32 and not states[:, 0].any()
""",
}


@pytest.mark.parametrize("case", CASES)
def test_over_three_devices(case, python):
    python(HEAD + CASES[case], **THREE)


def test_one_device_is_enough():
    x = torch.arange(4.0, device="npu")

    assert torch.npu.comm.broadcast(x, [0])[0] is x
    assert torch.npu.comm.gather(torch.npu.comm.scatter(x, [0])).tolist() == x.tolist()


def test_data_parallel_with_nothing_imported(python):
    """torch.nn.parallel finds its functions before torch.npu.comm is loaded."""
    code = """
import sys, torch
net = torch.nn.Linear(4, 2).npu()
x = torch.ones(6, 4)
assert "npu_dispatch.npu.comm" not in sys.modules
y = torch.nn.DataParallel(net)(x.npu())
torch.testing.assert_close(y.cpu(), net.cpu()(x))
"""
    python(code, **THREE)
