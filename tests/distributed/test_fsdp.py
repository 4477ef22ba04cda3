"""fully_shard, in the ways it is used, trains as on cpu with gloo."""

from __future__ import annotations

import pytest

HEAD = """
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions, set_model_state_dict)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard)
join("cpu:gloo,npu:hccl")
torch.npu.set_device(0)
def half(**more):
    return MixedPrecisionPolicy(torch.bfloat16, **more)
def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 33), nn.ReLU(), nn.Linear(33, 4))
"""

TRAIN = """
def train(device, meta=False, clip=False, accumulate=1, **options):
    mesh = init_device_mesh(device, (size,))
    whole = net()
    with torch.device("meta" if meta else device):
        model = net()
    for part in (model[0], model):
        fully_shard(part, mesh=mesh, **options)
    on_host = "offload_policy" in options
    if meta:
        model.to_empty(device="cpu" if on_host else device)
    # From rank 0 alone: the others have other numbers.
    state = whole.state_dict() if rank == 0 else {}
    set_model_state_dict(model, state, options=StateDictOptions(
        full_state_dict=True, broadcast_from_rank0=True, cpu_offload=on_host))
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    told = []
    for step in range(4):
        model.set_requires_gradient_sync((step + 1) % accumulate == 0)
        out = model(batch(step, 8, 8).to(device))
        assert out.dtype == getattr(
            options.get("mp_policy"), "param_dtype", torch.float32)
        loss = out.float().pow(2).mean()
        loss.backward()
        if clip:
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            told.append(norm.full_tensor().item())
        if (step + 1) % accumulate == 0:
            held = model[0].weight.to_local()
            assert held.device.type == ("cpu" if on_host else device)
            assert len(held) == len(torch.arange(33).chunk(size)[rank])
            optimizer.step()
            optimizer.zero_grad()
        told.append(loss.item())
    return told
for way in (
    dict(),
    dict(reshard_after_forward=False, clip=True),
    dict(accumulate=2),
    dict(meta=True),
    dict(offload_policy=CPUOffloadPolicy()),
    dict(by=1e-2, mp_policy=half(reduce_dtype=torch.float32)),
    dict(by=1e-2, mp_policy=half(reduce_dtype=torch.bfloat16)),
):
    what, by = f"fully_shard with {way}", way.pop("by", 1e-5)
    near(train("cpu", **way), train("npu", **way), by, what)
"""


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.nightly)])
def test_a_sharded_model_trains_as_on_cpu(ranks, size: int):
    ranks(HEAD + TRAIN, size)


def test_groups_of_a_mesh_share_a_model_in_two_ways(ranks):
    """Four ranks, two by two: sharded and split, and sharded and replicated."""
    ranks(
        HEAD
        + """
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel, RowwiseParallel, parallelize_module)
def train(device, split):
    mesh = init_device_mesh(device, (2, 2), mesh_dim_names=("a", "b"))
    assert mesh["a"].get_local_rank() == rank // 2
    assert mesh["b"].get_local_rank() == rank % 2
    model = net().to(device)
    if split:
        model = parallelize_module(
            nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4)).to(device),
            mesh["b"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=mesh["a"] if split else mesh)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    losses = []
    for step in range(3):
        x = batch(step, 4, 8, of=rank // 2 if split else rank)
        loss = model(x.to(device)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses
for split in (True, False):
    near(train("cpu", split), train("npu", split))
mesh = init_device_mesh("npu", (2, 2), mesh_dim_names=("a", "b"))
full = torch.arange(32.).reshape(8, 4)
spread = distribute_tensor(full.npu(), mesh, [Shard(0), Shard(1)])
mine = full.chunk(2)[rank // 2].chunk(2, 1)[rank % 2]
assert torch.equal(spread.to_local().cpu(), mine)
other = spread.redistribute(placements=[Replicate(), Shard(0)])
assert torch.equal(other.full_tensor().cpu(), full)
flat = mesh["a", "b"]._flatten("all").get_group()
t = torch.ones(1).npu()
dist.all_reduce(t, group=flat)
assert t.item() == 4
""",
        4,
    )
