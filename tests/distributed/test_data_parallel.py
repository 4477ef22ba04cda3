"""DDP, as it is used and with what it is used with, trains as on cpu with gloo."""

from __future__ import annotations

import pytest

HEAD = """
import torch.nn as nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks as hooks
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import (
    PowerSGDState, powerSGD_hook)
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
join("cpu:gloo,npu:hccl")
def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 4))
def train(model, optimizer, steps, device):
    losses = []
    for step in steps:
        loss = model(batch(step, 16, 8).to(device)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses
"""
OPTIONS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 4)
        self.norm, self.unused = nn.BatchNorm1d(32), nn.Linear(3, 3)
    def forward(self, x):
        return self.b(torch.relu(self.norm(self.a(x))))
def with_options(device, options):
    torch.manual_seed(rank)  # DDP makes them the same
    model = DDP(Net().to(device), **options)
    return train(model, torch.optim.AdamW(model.parameters(), 0.01), range(4), device)
for options in (
    dict(find_unused_parameters=True),
    dict(find_unused_parameters=True, gradient_as_bucket_view=True),
    dict(find_unused_parameters=True, bucket_cap_mb=0.001),
    dict(static_graph=True),
):
    cpu, npu = (with_options(device, options) for device in ("cpu", "npu"))
    near(cpu, npu, what=f"DDP with {options}")
    assert npu[-1] < npu[0]
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
near(*(grads[device].flatten().tolist() for device in grads), what="no_sync()")
"""
HOOKED = """
def hooked(device, state, hook):
    model = DDP(net().to(device))
    # By its name cpu refuses the one of bf16.
    model.register_comm_hook(
        state, hook if device == "npu" else lambda state, bucket: hook(state, bucket))
    losses = train(model, torch.optim.SGD(model.parameters(), 0.1), range(5), device)
    return losses + model.module[0].bias.tolist()
# Of more than two ranks gloo rounds each sum of halves, hccl the last.
halves = 1e-5 if size == 2 else 1e-2
for hook, by in (
    (hooks.allreduce_hook, 1e-5),
    (hooks.fp16_compress_hook, halves),
    (hooks.bf16_compress_hook, halves),
    (hooks.bf16_compress_wrapper(hooks.allreduce_hook), halves),
    (powerSGD_hook, 1e-5),
):
    def state():
        return PowerSGDState(None, 2, start_powerSGD_iter=2)
    cpu, npu = (
        hooked(device, state() if hook is powerSGD_hook else None, hook)
        for device in ("cpu", "npu"))
    near(cpu, npu, by, hook.__name__)
"""
UNEVEN = """
def uneven(device):
    model = DDP(net().to(device))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with model.join():
        losses = train(model, optimizer, range(3 + 2 * rank), device)
    return losses + model.module[2].weight.flatten().tolist()
cpu, npu = uneven("cpu"), uneven("npu")
near(cpu, npu, what="a rank that runs out of data")
assert len(npu) == 3 + 2 * rank + 256
"""
SHARED_STATE = """
def sharded(device):
    model = DDP(net().to(device))
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.AdamW, lr=0.01)
    losses = train(model, optimizer, range(4), device)
    held = [p for group in optimizer.optim.param_groups for p in group["params"]]
    assert 0 < len(held) < 4
    optimizer.consolidate_state_dict(0)
    if rank == 0:
        whole = optimizer.state_dict()["state"]
        assert len(whole) == 4
        losses += [s["exp_avg"].sum().item() for s in whole.values()]
    return losses
near(sharded("cpu"), sharded("npu"), what="an optimizer whose state is shared")
"""
# SyncBatchNorm has no kernels for cpu: a batch norm there, unsplit.
NORMED = """
def normed(split):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
    if split:
        model = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(model).npu())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for step in range(3):
        x = batch(step, 16, 3, 4, 4, of=0)
        loss = model(x.chunk(size)[rank].npu() if split else x).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss = loss.detach()
        if split:
            dist.all_reduce(loss, dist.ReduceOp.AVG)
        losses.append(loss.item())
    norm = model.module[1] if split else model[1]
    assert isinstance(norm, nn.SyncBatchNorm) is split
    model.eval()
    x = batch(9, 4, 3, 4, 4, of=0)
    out = model(x.npu() if split else x).cpu()
    return losses + norm.running_var.tolist() + out.flatten().tolist()
near(normed(False), normed(True), 1e-4, "a synchronized batch norm")
"""
SPARSE = """
def sparse(device):
    torch.manual_seed(7)
    model = nn.Sequential(
        nn.Embedding(20, 8, sparse=True), nn.Flatten(), nn.Linear(24, 4)).to(device)
    ddp = DDP(model)
    sgd = torch.optim.SGD(ddp.parameters(), 0.1)
    losses = []
    for step in range(5):
        seed = torch.Generator().manual_seed(size * step + rank)
        x = torch.randint(0, 20, (6, 3), generator=seed).to(device)
        loss = ddp(x).square().mean()
        sgd.zero_grad()
        loss.backward()
        assert model[0].weight.grad.is_sparse
        sgd.step()
        losses.append(loss.item())
    return losses + model[0].weight.detach().cpu().flatten().tolist()
near(sparse("cpu"), sparse("npu"), what="sparse gradients")
"""
WAYS = OPTIONS + NO_SYNC + HOOKED + UNEVEN + SHARED_STATE + NORMED + SPARSE


@pytest.mark.parametrize("size", [pytest.param(2, marks=pytest.mark.nightly), 4])
def test_ddp_trains_as_on_cpu(ranks, size: int):
    ranks(HEAD + WAYS, size)


def test_ddp_knows_how_long_its_steps_took(ranks):
    results = ranks(
        HEAD
        + """
model = DDP(net().npu())
train(model, torch.optim.SGD(model.parameters(), 0.1), range(12), "npu")
told = model._get_ddp_logging_data()
forward, backward, moving = (
    told[f"avg_{part}_time"]
    for part in ("forward_compute", "backward_compute", "backward_comm"))
assert forward > 0 and 0 < moving, told
# What is communicated ends behind the first gradient, inside of backward.
assert backward >= told["avg_backward_compute_comm_overlap_time"] >= 0, told
"""
    )

    for result in results:
        assert "Time stats" not in result.stderr
