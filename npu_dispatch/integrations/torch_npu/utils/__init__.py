"""torch_npu.utils: what programs import of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from npu_dispatch.import_alias import refused_names
from npu_dispatch.integrations.torch_npu.utils.collect_env import get_cann_version

__all__ = [
    "FlopsCounter",
    "get_cann_version",
    "reset_thread_affinity",
    "set_thread_affinity",
]

_ALL_CORES = os.sched_getaffinity(0)


class FlopsCounter:
    """Counts floating-point operations between start() and stop()."""

    def __init__(self) -> None:
        # It takes longer to import than this package.
        from torch.utils.flop_counter import FlopCounterMode

        self._mode: Any = FlopCounterMode(display=False)

    def start(self) -> None:
        """Count from now on."""
        self._mode.__enter__()

    def stop(self) -> None:
        """Stop counting; get_flops() still gives what was counted."""
        self._mode.__exit__(None, None, None)

    pause, resume = stop, start

    def get_flops(self) -> list[int]:
        """Return what was recorded and what was traversed: here one number, twice."""
        return [self._mode.get_total_flops()] * 2


def set_thread_affinity(core_range: Sequence[int] | None = None) -> None:
    """Run the calling thread on cores [first, last] only; with None on all."""
    if core_range is None:
        reset_thread_affinity()
        return
    first, last = core_range
    os.sched_setaffinity(0, range(first, last + 1))


def reset_thread_affinity() -> None:
    """Run the calling thread on all cores that the process began with."""
    os.sched_setaffinity(0, _ALL_CORES)


__getattr__ = refused_names("torch_npu.utils")
