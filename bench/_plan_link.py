"""The link of two ranks for bench/plan.py: prints us of an all_reduce, by bytes."""

from __future__ import annotations

import statistics
import time

import torch
import torch.distributed as dist

SIZES = (4096, 1 << 22)  # as _plan_job.py has them
CALLS, REPEATS = 10, 15


def us(size: int) -> float:
    # Each call has a tensor of its own, as gradients are: caches hold none of them.
    tensors = [torch.ones(size // 4, device="npu") for _ in range(CALLS)]
    found = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        for x in tensors:
            dist.all_reduce(x)
        torch.npu.synchronize()
        found.append((time.perf_counter() - begun) / CALLS * 1e6)
    return statistics.median(found)


dist.init_process_group("hccl")
times = [us(size) for size in SIZES]
if dist.get_rank() == 0:
    print(*times)
dist.destroy_process_group()
