"""Whether programs do the same on both devices, in children of a process."""

import faulthandler
import functools
import gc
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

import npu_dispatch  # noqa: F401 - registers the device
from tests.differential import planted, tables
from tests.differential.compare import Difference, compare
from tests.differential.context import steps
from tests.differential.generate import AUTHORS, SHORTEST, write_step
from tests.differential.machine import Machine, Trace, run
from tests.differential.widened import refused
from tests.differential.words import DEVICES

PROGRAMS = 120
# What starts threads, which children would lack, as autograd does, or uses the device.
FOR_CHILDREN = ("backward", "grad", "jacrev", "vjp", "drawn", "checkpoint", "compiled")


@functools.cache
def warm() -> None:
    """Import what first calls import, and spare children the search for garbage.

    Programs on `meta` run the functions, most of them Python, that a device asks
    for shapes: what those remember of their first call is no device's.
    """
    torch.set_num_threads(1)  # Threads of a parent are not there in its children.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tables.fill()
        for number in range(PROGRAMS):
            machine = Machine("meta")
            for choices in steps(0, number, SHORTEST, 15):
                step = write_step(choices, machine, AUTHORS)
                if not any(word in step for word in FOR_CHILDREN):
                    machine.run(step)
            machine.close()
    gc.collect()
    gc.freeze()


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
