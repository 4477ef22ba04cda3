"""A training loop for bench/plan.py: MODEL STEPS; prints the time of a step."""

from __future__ import annotations

import sys
import time

import torch
from _peers import NPU
from steps import training_step

model, kind, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
step = training_step(NPU, model, kind)
for _ in range(5):
    step()
torch.npu.synchronize()
begun = time.perf_counter()
for _ in range(steps):
    step()
torch.npu.synchronize()
print((time.perf_counter() - begun) / steps * 1e6)
