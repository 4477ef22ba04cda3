"""A loop for bench/plan.py: PROGRAM SECONDS; prints the microseconds of a step.

It is the least of several blocks, because others on this machine only add to some.
"""

from __future__ import annotations

import sys
import time

import torch
from _peers import NPU, Call
from _plan_models import OTHERS, TRAINED
from _plan_stated import STATED, stated
from steps import training_step

BLOCK_S = 0.025
WARM_UPS = 10


def program(name: str) -> Call:
    torch.manual_seed(0)
    if name in TRAINED:
        return training_step(NPU, name, TRAINED[name])
    if name in STATED:
        return stated(name)
    return OTHERS[name]()


def timed(step: Call, count: int) -> float:
    begun = time.perf_counter()
    for _ in range(count):
        step()
    torch.npu.synchronize()
    return (time.perf_counter() - begun) / count


def main() -> None:
    step, seconds = program(sys.argv[1]), float(sys.argv[2])
    timed(step, WARM_UPS)
    count = max(round(BLOCK_S / timed(step, 3)), 1)
    found, end = [], time.perf_counter() + seconds
    while not found or time.perf_counter() < end:
        found.append(timed(step, count))
    print(min(found) * 1e6)


if __name__ == "__main__":
    main()
