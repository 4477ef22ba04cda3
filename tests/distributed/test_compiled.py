"""Compiled programs call collectives, and wait for them where they must."""

from __future__ import annotations

import pytest

FUNCTIONS = """
import torch.distributed._functional_collectives as calls
join("cpu:gloo,npu:hccl")
def f(x, group):
    y = x * 2
    reduced = calls.all_reduce(y, "sum", group)
    gathered = calls.all_gather_single(y, 0, group)
    scattered = calls.reduce_scatter_single(gathered, "avg", 0, group)
    swapped = calls.all_to_all_single(gathered, None, None, group)
    told = calls.broadcast(y, 1, group)
    both = calls.all_reduce_coalesced([x, x + 1], "max", group)
    return reduced + 1, gathered * 3, scattered - 1, swapped * 2, told + 1, *both
def given(r):
    return torch.arange(6.).reshape(2, 3) + r
# Of two ranks, as the definitions say.
y = [2 * given(r) for r in range(2)]
whole = torch.cat(y)
wanted = (y[0] + y[1] + 1, whole * 3, whole.chunk(2)[rank] - 1,
          torch.cat([whole.chunk(2)[rank]] * 2) * 2, y[1] + 1, given(1), given(1) + 1)
"""


@pytest.mark.parametrize(
    "backend",
    # Steps of many ranks are compiled by Inductor below, collectives included.
    ["aot_eager", pytest.param("inductor", marks=pytest.mark.nightly)],
)
def test_functional_collectives_are_compiled(ranks, backend: str):
    ranks(
        FUNCTIONS
        + f"compiled = torch.compile(f, backend={backend!r}, fullgraph=True)"
        + """
for _ in range(2):
    got = compiled(given(rank).npu(), dist.group.WORLD)
    for a, b in zip(got, wanted, strict=True):
        assert a.device.type == "npu"
        torch.testing.assert_close(a.cpu(), b)
"""
    )


TRAIN = """
import contextlib
import torch.nn as nn
from torch._dynamo import compiled_autograd
from torch._dynamo.utils import counters
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module)
from torch.nn.parallel import DistributedDataParallel as DDP
join("cpu:gloo,npu:hccl")

class Block(nn.Module):
    def __init__(self, wide):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.up, self.down = nn.Linear(16, wide), nn.Linear(wide, 16)
    def forward(self, x):
        return self.down(torch.relu(self.up(self.norm(x))))

def in_buckets(device):  # of which it takes three
    return DDP(Block(20000).to(device), bucket_cap_mb=1)
def sharded(device):
    model = Block(33).to(device)
    mesh = init_device_mesh(device, (size,))
    for part in (model.up, model):
        fully_shard(part, mesh=mesh)
    return model
def in_columns(device):
    # Sharded between them: all_gather and reduce_scatter are in the graph.
    plan = {"norm": SequenceParallel(),
            "up": ColwiseParallel(input_layouts=Shard(1)),
            "down": RowwiseParallel(output_layouts=Shard(1))}
    mesh = init_device_mesh(device, (size,))
    return parallelize_module(Block(32).to(device), mesh, plan)

def train(device, make, of, options=None):
    torch.manual_seed(0)
    model = make(device)
    if options is not None:
        model = torch.compile(model, **options)
    # Some parameters are no DTensors, which a step of many at once refuses.
    optimizer = torch.optim.SGD(model.parameters(), 1e-2, foreach=False)
    losses = []
    for step in range(3):
        out = model(batch(step, 4, 8, 16, of=of).to(device))
        loss = (out - 1).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses

def compare(make, of=rank, graphs=1, ddp="ddp_optimizer", **options):
    wanted = train("cpu", make, of)
    torch._dynamo.reset()
    counters.clear()
    backward = contextlib.nullcontext()
    if ddp == "python_reducer":  # DDP's collectives are in the graph of backward
        backward = compiled_autograd._enable(torch.compile)
    with torch._dynamo.config.patch(optimize_ddp=ddp), backward:
        near(wanted, train("npu", make, of, options))
    assert counters["aot_autograd"]["ok"] >= graphs, counters["aot_autograd"]
"""
DATA_PARALLEL = """
compare(in_buckets, graphs=3{options})  # cut where a bucket ends
compare(sharded{options})
"""


def test_compiled_steps_of_many_ranks_give_the_losses_of_cpu(ranks):
    """Cut where collectives are; at night Inductor makes the kernels, too."""
    ranks(TRAIN + DATA_PARALLEL.format(options=", backend='aot_eager'"))


@pytest.mark.nightly
def test_compiled_steps_of_four_ranks_give_the_losses_of_cpu(ranks):
    ranks(TRAIN + DATA_PARALLEL.format(options="") + "compare(in_columns, 0)", 4)


@pytest.mark.nightly
def test_ddp_is_compiled_in_each_of_its_ways(ranks):
    """As one graph, collectives in the graph of backward, and as a replay."""
    ranks(
        TRAIN
        + """
compare(in_buckets, ddp="no_optimization")
compare(in_buckets, ddp="python_reducer")
assert counters["compiled_autograd"]["captures"] > 0, counters
compare(in_buckets, mode="reduce-overhead")
compare(sharded, mode="reduce-overhead")
compare(in_columns, 0, mode="reduce-overhead")
"""
    )


@pytest.mark.nightly
@pytest.mark.parametrize("blocking", ["0", "1"])
def test_compiled_steps_run_where_they_are_launched(ranks, blocking: str):
    """On another device, on another stream, and with a host that waits."""
    ranks(
        TRAIN
        + """
torch.npu.set_device(1)
with torch.npu.stream(torch.npu.Stream()):
    compare(in_buckets, graphs=3)
    compare(sharded)
    compare(in_columns, 0)
""",
        ASCEND_LAUNCH_BLOCKING=blocking,
        NPU_DISPATCH_DEVICES="2",
    )
