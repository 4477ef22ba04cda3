"""Steps of optimizers are counted, whoever reads, and cost a program nothing else."""

from __future__ import annotations

import os

import torch

from npu_dispatch import _C
from npu_dispatch.observe.segment import StatsReader, segment_file

NO_NPU = """
import torch
import npu_dispatch
from npu_dispatch.observe.segment import segment_file
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(1, 2)).sum().backward()
optimizer.step()
print(segment_file().exists())
"""


def steps() -> int:
    with StatsReader(segment_file(os.getpid())) as reader:
        return reader.process().optimizer_steps


def test_each_step_of_each_optimizer_counts():
    models = [torch.nn.Linear(4, 4).npu() for _ in range(2)]
    optimizers = [
        torch.optim.AdamW(models[0].parameters()),
        torch.optim.SGD(models[1].parameters(), lr=0.1),
    ]
    before = steps()
    for _ in range(3):
        for model, optimizer in zip(models, optimizers, strict=True):
            model(torch.ones(2, 4, device="npu")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    assert steps() - before == 6


def test_a_program_without_npu_gets_no_segment(fresh_python):
    assert fresh_python(NO_NPU).stdout.strip() == "False"


def test_a_compiled_step_counts_as_one():
    parameter = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([parameter], lr=0.125)
    parameter.grad = torch.ones(4)
    step = torch.compile(lambda: optimizer.step(), backend="eager")
    torch.npu.init()
    before = steps()
    for _ in range(3):
        step()

    assert parameter.tolist() == [0.625] * 4
    assert steps() - before == 3


def test_the_count_is_no_work_of_the_device():
    torch.npu.synchronize()
    tail = _C.stream_tail(0, 0)
    _C.count_optimizer_step()

    assert _C.stream_tail(0, 0) == tail
