"""What is built on torch.distributed trains as it does on cpu with gloo."""

from __future__ import annotations

import pytest

TRAIN = """
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
join("gloo" if sys.argv[4:] else None) if False else None

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 4)
        self.norm, self.unused = nn.BatchNorm1d(32), nn.Linear(3, 3)
    def forward(self, x):
        return self.b(F.relu(self.norm(self.a(x))))

def batch(step):
    g = torch.Generator().manual_seed(2 * step + rank)
    return torch.randn(16, 8, generator=g)

def train(device, group, wrap, steps=4):
    torch.manual_seed(rank)  # DDP makes them the same
    model = wrap(Net().to(device), group)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    losses = []
    for step in range(steps):
        loss = model(batch(step).to(device)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses

join("cpu:gloo,npu:hccl")
def compare(wrap):
    cpu, npu = train("cpu", None, wrap), train("npu", None, wrap)
    assert all(abs(a - b) <= 1e-5 * abs(a) for a, b in zip(cpu, npu)), (cpu, npu)
    assert npu[-1] < npu[0]
"""
TRAIN = "\n".join(line for line in TRAIN.splitlines() if "if False" not in line)


@pytest.mark.parametrize(
    "options",
    [
        "find_unused_parameters=True",
        "find_unused_parameters=True, gradient_as_bucket_view=True",
        "find_unused_parameters=True, bucket_cap_mb=0.001",
        "static_graph=True",
    ],
)
def test_ddp_trains_as_on_cpu(ranks, options: str):
    ranks(TRAIN + f"\ncompare(lambda m, g: DDP(m, {options}))\n")


def test_ddp_without_a_sync_and_with_a_hook_trains_as_on_cpu(ranks):
    ranks(
        TRAIN
        + """
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
def hooked(m, g):
    ddp = DDP(m, find_unused_parameters=True)
    ddp.register_comm_hook(None, fp16_compress_hook)
    return ddp
compare(hooked)
grads = {}
for device in ("cpu", "npu"):
    torch.manual_seed(0)
    model = DDP(nn.Linear(8, 2).to(device))
    with model.no_sync():
        model(batch(0).to(device)).sum().backward()
    model(batch(1).to(device)).sum().backward()
    grads[device] = model.module.weight.grad.cpu()
torch.testing.assert_close(grads["npu"], grads["cpu"])
"""
    )


def test_fsdp2_trains_as_on_cpu_and_its_checkpoint_loads(ranks):
    ranks(
        TRAIN
        + """
from torch.distributed.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh
import torch.distributed.checkpoint as dcp
class Plain(nn.Sequential):
    pass
def losses(device):
    torch.manual_seed(0)
    model = Plain(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4)).to(device)
    mesh = init_device_mesh(device, (2,))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    told = []
    for step in range(4):
        loss = model(batch(step).to(device)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        told.append(loss.item())
    return told, model
cpu, _ = losses("cpu")
npu, model = losses("npu")
assert all(abs(a - b) <= 1e-5 * abs(a) for a, b in zip(cpu, npu)), (cpu, npu)
state = model.state_dict()
saved = {k: v.full_tensor().cpu() for k, v in state.items()}
dcp.save(state, checkpoint_id=sys.argv[3] + "dcp")
for v in state.values(): v.zero_()
dcp.load(state, checkpoint_id=sys.argv[3] + "dcp")
for k, v in state.items():
    assert torch.equal(v.full_tensor().cpu(), saved[k]), k
"""
    )
