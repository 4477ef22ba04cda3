"""What a fuzzing process imports before it forks, so that no child need do so."""

from __future__ import annotations

import gc
import warnings

import npu_dispatch  # noqa: F401 - registers the device
from tests.differential.choices import steps
from tests.differential.generate import AUTHORS, SHORTEST, write_step
from tests.differential.machine import Machine, fill_tables

PROGRAMS = 120


def warm() -> None:
    """Import what first calls import, and spare children the search for garbage.

    Programs on `meta` run the functions, most of them Python, that a device asks
    for shapes: what those remember of their first call is no device's.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fill_tables()
        for number in range(PROGRAMS):
            machine = Machine("meta")
            for choices in steps(0, number, SHORTEST, 15):
                step = write_step(choices, machine, AUTHORS)
                # No backward: autograd starts threads, which children would lack.
                if "backward" not in step and "grad(" not in step:
                    machine.run(step)
            machine.close()
    gc.collect()
    gc.freeze()
