"""What register() changes in torch, where torch does not ask the device itself."""

from __future__ import annotations

from npu_dispatch.npu.patches import (
    backward,
    cross_entropy,
    data_parallel,
    dlpack,
    global_state,
    kernels,
    lazy_modules,
    multiprocessing,
    printing,
    profiled_memory,
)

__all__ = ["apply"]


def apply() -> None:
    """Make all changes; to be called once, when torch knows the device."""
    backward.leave_nothing()
    cross_entropy.sum_as_on_cpu()
    dlpack.name_the_device()
    global_state.keep_in_order()
    kernels.tell_of_new_ones()
    profiled_memory.report_to_profiles()
    data_parallel.serve_torch()
    lazy_modules.let_them_move()
    multiprocessing.serve()
    printing.copy_once()
