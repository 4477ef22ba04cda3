"""A data-parallel training loop for bench/plan.py: prints the us of a step.

Gradients are summed by hand, since DDP compares values, of which the device that is
emulated has none.
"""

from __future__ import annotations

import statistics
import time

import torch
import torch.distributed as dist

WARMUP, STEPS = 10, 40

dist.init_process_group("hccl")
model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(6)]).npu()
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
x = torch.ones(256, 1024, device="npu")
took = []
for _ in range(STEPS):
    begun = time.perf_counter()
    optimizer.zero_grad()
    model(x).square().mean().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    torch.npu.synchronize()
    took.append((time.perf_counter() - begun) * 1e6)
if dist.get_rank() == 0:
    print(statistics.median(took[WARMUP:]))
dist.destroy_process_group()
