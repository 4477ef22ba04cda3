"""A model that is split over ranks computes what it does on cpu with gloo."""

from __future__ import annotations

import pytest

TENSOR = """
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import (
    DTensor, Partial, Replicate, Shard, distribute_tensor, randn)
from torch.distributed.tensor.parallel import (
    ColwiseParallel, RowwiseParallel, SequenceParallel, loss_parallel,
    parallelize_module)
join("cpu:gloo,npu:hccl")
torch.npu.set_device(0)
"""


BLOCK = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)
    def forward(self, x):
        return self.down(torch.relu(self.up(self.norm(x))))

def train(device, sequence):
    torch.manual_seed(0)
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    if sequence:
        plan = {"norm": SequenceParallel(),
                "up": ColwiseParallel(input_layouts=Shard(1)),
                "down": RowwiseParallel(
                    output_layouts=Shard(1), use_local_output=False)}
    model = parallelize_module(
        Block().to(device), init_device_mesh(device, (size,)), plan)
    # Some of them are no DTensors, which a step of many at once refuses.
    optimizer = torch.optim.AdamW(model.parameters(), 0.01, foreach=False)
    losses = []
    for step in range(4):
        out = model(batch(step, 4, 8, 16, of=0).to(device))
        out = out.full_tensor() if sequence else out
        loss = out.pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses
for sequence in (False, True):
    cpu, npu = train("cpu", sequence), train("npu", sequence)
    near(cpu, npu, what=f"a block in columns and rows, sequence={sequence}")
    assert npu[-1] < npu[0]
"""
LAYOUTS = """
mesh = init_device_mesh("npu", (size,))
def spread(t, layout):
    return distribute_tensor(t.npu(), mesh, [layout])
layouts = [Replicate(), Shard(0), Shard(1)]
def part_of(full, dim):
    parts = full.chunk(size, dim)  # the last ranks may have nothing
    return parts[rank] if rank < len(parts) else full.narrow(dim, 0, 0)
for shape in ((8, 6), (7, 5)):  # evenly, and not
    full = torch.arange(float(shape[0] * shape[1])).reshape(shape)
    for before in layouts:
        for after in layouts:
            got = spread(full, before).redistribute(mesh, [after])
            mine = full if after.is_replicate() else part_of(full, after.dim)
            assert got.to_local().device.type == "npu"
            assert torch.equal(got.to_local().cpu(), mine), (before, after)
            assert torch.equal(got.full_tensor().cpu(), full), (before, after)
    last = size - 1
    results = {"sum": size * (full + last / 2), "avg": full + last / 2,
               "max": full + last}
    for kind, wanted in results.items():
        for after in layouts:
            part = DTensor.from_local((full + rank).npu(), mesh, [Partial(kind)])
            got = part.redistribute(mesh, [after]).full_tensor().cpu()
            assert torch.equal(got, wanted), (kind, after)
a, b = torch.arange(24.).reshape(4, 6), torch.arange(30.).reshape(6, 5)
product = spread(a, Shard(1)) @ spread(b, Shard(0))
assert product.placements[0].is_partial()
assert torch.equal(product.full_tensor().cpu(), a @ b)
# Each shard draws its own numbers, all replicas the same.
torch.manual_seed(7)
drawn = randn((8, 4), device_mesh=mesh, placements=[Shard(0)]).full_tensor().cpu()
drawn = drawn.chunk(size)
for i in range(size):
    assert not any(torch.equal(drawn[i], other) for other in drawn[:i])
drawn = randn((8, 4), device_mesh=mesh, placements=[Replicate()]).to_local()
every = [torch.empty_like(drawn) for _ in range(size)]
dist.all_gather(every, drawn)
assert all(torch.equal(other.cpu(), every[0].cpu()) for other in every)

logits, target = batch(3, 6, 10, of=0), torch.tensor([0, 9, 4, 5, 2, 7])
x = spread(logits, Shard(1)).requires_grad_()
with loss_parallel():
    loss = nn.functional.cross_entropy(x, target.npu())
    loss.backward()
logits.requires_grad_()
wanted = nn.functional.cross_entropy(logits, target)
wanted.backward()
near([wanted.item()], [loss.full_tensor().item()])
torch.testing.assert_close(x.grad.full_tensor().cpu(), logits.grad)
"""
# Microbatches of a stage on each rank, and of two on each, in turn.
PIPES = """
import copy
import torch.nn as nn
from torch.distributed.pipelining import (
    PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B)
torch.manual_seed(0)
layers = [nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(2 * size)]

def piped(device, schedule):
    parts = copy.deepcopy(layers)
    if schedule is ScheduleInterleaved1F1B:
        mine, stages = {i: parts[i] for i in (rank, rank + size)}, 2 * size
    else:
        mine, stages = {rank: nn.Sequential(*parts[2 * rank:2 * rank + 2])}, size
    on = torch.device(device)
    mine = {i: part.to(on) for i, part in mine.items()}
    made = [PipelineStage(part, i, stages, on) for i, part in mine.items()]
    run = schedule(made if len(made) > 1 else made[0], n_microbatches=4,
                   loss_fn=lambda out, wanted: (out - wanted).pow(2).mean())
    parameters = [p for part in mine.values() for p in part.parameters()]
    optimizer = torch.optim.SGD(parameters, 0.1)
    told = []
    for step in range(3):
        optimizer.zero_grad()
        losses = []
        wanted = {"target": batch(step, 8, 8, of=1).to(on), "losses": losses}
        run.step(*([batch(step, 8, 8, of=0).to(on)] if 0 in mine else []),
                 **(wanted if stages - 1 in mine else {}))
        optimizer.step()
        told += [loss.item() for loss in losses]
    return told, [p.detach().cpu() for p in parameters]

for schedule in (ScheduleGPipe, Schedule1F1B, ScheduleInterleaved1F1B):
    (cpu, by_cpu), (npu, by_npu) = piped("cpu", schedule), piped("npu", schedule)
    near(cpu, npu, what=schedule)
    # Of the last stage, by microbatch.
    assert len(npu) == (12 if rank == size - 1 else 0)
    torch.testing.assert_close(by_npu, by_cpu)
"""


@pytest.mark.parametrize("size", [pytest.param(2, marks=pytest.mark.nightly), 4])
def test_a_model_that_is_split_trains_as_on_cpu(ranks, size: int):
    ranks(TENSOR + BLOCK + LAYOUTS + PIPES, size)
