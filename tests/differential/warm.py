"""What a fuzzing process imports before it forks, so that no child need do so."""

from __future__ import annotations

import functools
import gc
import warnings

import torch

import npu_dispatch  # noqa: F401 - registers the device
from tests.differential import tables
from tests.differential.choices import steps
from tests.differential.generate import AUTHORS, SHORTEST, write_step
from tests.differential.machine import Machine

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
