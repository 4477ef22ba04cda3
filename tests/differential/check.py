"""Whether programs do the same on both devices."""

from __future__ import annotations

import faulthandler
import gc
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from tests.differential import planted
from tests.differential.compare import Difference, compare
from tests.differential.machine import Trace, run
from tests.differential.refused import refused
from tests.differential.words import DEVICES


def prepare(plant: str | None = None) -> None:
    """Set a child up: results are the same to the bit on one thread.

    It says where it was when a signal ends it, and has two devices.
    """
    faulthandler.enable()
    os.environ["NPU_DISPATCH_DEVICES"] = DEVICES
    torch.set_num_threads(1)
    if plant:
        planted.BUGS[plant]()


def allocated() -> int:
    devices = range(torch.npu.device_count())
    return sum(torch.npu.memory_allocated(device) for device in devices)


def against(program: list[str], cpu: Trace) -> Difference | None:
    """Run a program on npu and compare it with its run on cpu."""
    before = allocated()
    npu = run(program, "npu")
    if found := compare(cpu, npu):
        step = found.number
        raised = cpu.seen[step].error is not None
        return replace(found, refused=refused(program, step)) if raised else found
    del npu
    # autograd keeps what is written in place and saved for it, also on cpu.
    if any("requires_grad" in step or "rnn(" in step for step in program):
        return None
    if allocated() > before:
        gc.collect()
    left = allocated() - before
    if left <= 0:
        return None
    return Difference(len(program) - 1, program[-1], "memory left", "0", str(left))


def each(programs: Sequence[list[str]]) -> Iterator[Difference | None]:
    """Run programs one after another; yield what each does otherwise."""
    for program in programs:
        if program:
            yield against(program, run(program, "cpu"))


def check(programs: Sequence[list[str]], plant: str | None = None) -> Difference | None:
    """Run programs one after another; return what the last one does otherwise."""
    prepare(plant)
    return [None, *each(programs)][-1]


def check_all(programs: Sequence[list[str]]) -> Difference | None:
    """Run programs one after another; return what one of them does otherwise."""
    prepare()
    return next(filter(None, each(programs)), None)
