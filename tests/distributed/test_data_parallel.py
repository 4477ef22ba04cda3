"""What DDP is used with: hooks, uneven inputs, sharded optimizers, batch norms."""

from __future__ import annotations

import pytest

HEAD = """
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
join("cpu:gloo,npu:hccl")
def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 4))
def train(model, optimizer, steps, device):
    losses = []
    for step in steps:
        loss = model(batch(step, 4, 8).to(device)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses
"""
HOOKS = [
    "None, hooks.allreduce_hook",
    "None, hooks.fp16_compress_hook",
    "None, hooks.bf16_compress_hook",
    "None, hooks.bf16_compress_wrapper(hooks.allreduce_hook)",
    "PowerSGDState(None, 2, start_powerSGD_iter=2), powerSGD_hook",
]
HOOKED = """
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks as hooks
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import (
    PowerSGDState, powerSGD_hook)
def hooked(device, state, hook):
    model = DDP(net().to(device))
    # By its name cpu refuses the one of bf16.
    model.register_comm_hook(
        state, hook if device == "npu" else lambda state, bucket: hook(state, bucket))
    losses = train(model, torch.optim.SGD(model.parameters(), 0.1), range(5), device)
    return losses + model.module[0].bias.tolist()
"""
UNEVEN = """
def uneven(device):
    model = DDP(net().to(device))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with model.join():
        losses = train(model, optimizer, range(3 + 2 * rank), device)
    return losses + model.module[2].weight.flatten().tolist()
cpu, npu = uneven("cpu"), uneven("npu")
near(cpu, npu)
assert len(npu) == 3 + 2 * rank + 256
"""
SHARED_STATE = """
from torch.distributed.optim import ZeroRedundancyOptimizer
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
near(sharded("cpu"), sharded("npu"))
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
near(normed(False), normed(True), 1e-4)
"""


def with_hook(hook: str, by: float = 1e-5) -> str:
    return f"\nnear(hooked('cpu', {hook}), hooked('npu', {hook}), {by})\n"


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_of_ddp_changes_gradients_as_on_cpu(ranks, hook: str):
    ranks(HEAD + HOOKED + with_hook(hook))


def test_a_rank_that_runs_out_of_data_joins(ranks):
    ranks(HEAD + UNEVEN)


def test_an_optimizer_whose_state_is_shared_steps_as_on_cpu(ranks):
    ranks(HEAD + SHARED_STATE)


def test_a_synchronized_batch_norm_is_that_of_the_whole_batch(ranks):
    ranks(HEAD + NORMED)


def test_four_ranks_do_all_of_that(ranks):
    # Of more than two ranks gloo rounds each sum of halves, hccl the last.
    hooks = [with_hook(hook, 1e-2 if "16" in hook else 1e-5) for hook in HOOKS]
    ranks(HEAD + HOOKED + "".join(hooks) + UNEVEN + SHARED_STATE + NORMED, 4)


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
