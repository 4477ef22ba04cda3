"""What is built on torch.distributed trains as it does on cpu with gloo."""

from __future__ import annotations

import pytest

TRAIN = """
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed.checkpoint as dcp
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 4)
        self.norm, self.unused = nn.BatchNorm1d(32), nn.Linear(3, 3)
    def forward(self, x):
        return self.b(F.relu(self.norm(self.a(x))))

def train(device, model):
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    losses = []
    for step in range(4):
        loss = model(batch(step, 16, 8).to(device)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses

join("cpu:gloo,npu:hccl")
def compare(wrap, by=1e-5):
    losses = []
    for device in ("cpu", "npu"):
        torch.manual_seed(rank)  # DDP makes them the same
        losses.append(train(device, wrap(Net().to(device))))
    near(*losses, by)
    assert losses[1][-1] < losses[1][0]
"""

DDP = {
    options: f"\ncompare(lambda m: DDP(m, {options}))\n"
    for options in (
        "find_unused_parameters=True",
        "find_unused_parameters=True, gradient_as_bucket_view=True",
        "find_unused_parameters=True, bucket_cap_mb=0.001",
        "static_graph=True",
    )
}
HOOK = """
def hooked(m):
    ddp = DDP(m, find_unused_parameters=True)
    ddp.register_comm_hook(None, fp16_compress_hook)
    return ddp
# Of more than two ranks gloo rounds each sum, hccl the last.
compare(hooked, 1e-5 if size == 2 else 1e-3)
"""
NO_SYNC = """
grads = {}
for device in ("cpu", "npu"):
    torch.manual_seed(0)
    model = DDP(nn.Linear(8, 2).to(device))
    with model.no_sync():
        model(batch(0, 16, 8).to(device)).sum().backward()
    model(batch(1, 16, 8).to(device)).sum().backward()
    grads[device] = model.module.weight.grad.cpu()
torch.testing.assert_close(grads["npu"], grads["cpu"])
"""
SHARDED = """
class Plain(nn.Sequential):
    pass
def losses(device):
    torch.manual_seed(0)
    model = Plain(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4)).to(device)
    mesh = init_device_mesh(device, (size,))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    return train(device, model), model
cpu, _ = losses("cpu")
npu, model = losses("npu")
near(cpu, npu)
state = model.state_dict()
saved = {k: v.full_tensor().cpu() for k, v in state.items()}
dcp.save(state, checkpoint_id=sys.argv[3] + "dcp")
for v in state.values(): v.zero_()
dcp.load(state, checkpoint_id=sys.argv[3] + "dcp")
for k, v in state.items():
    assert torch.equal(v.full_tensor().cpu(), saved[k]), k
"""


@pytest.mark.parametrize("options", DDP)
def test_ddp_trains_as_on_cpu(ranks, options: str):
    ranks(TRAIN + DDP[options])


def test_ddp_without_a_sync_and_with_a_hook_trains_as_on_cpu(ranks):
    ranks(TRAIN + HOOK + NO_SYNC)


def test_fsdp2_trains_as_on_cpu_and_its_checkpoint_loads(ranks):
    ranks(TRAIN + SHARDED)


def test_four_ranks_train_as_on_cpu(ranks):
    ranks(TRAIN + "".join(DDP.values()) + HOOK + NO_SYNC + SHARDED, 4)
