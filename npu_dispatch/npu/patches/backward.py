"""Lets a backward that fails leave nothing behind, and users choose its threads."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.autograd import grad_mode, graph

from npu_dispatch import _C

__all__ = ["leave_nothing"]


def leave_nothing() -> None:
    """Free the gradients of failed backwards; let a choice of threads stand."""
    run: Any = graph._engine_run_backward

    @functools.wraps(run)
    def run_backward(*args: Any, **kwargs: Any) -> Any:
        try:
            return run(*args, **kwargs)
        except BaseException:
            _C.drop_unfinished_backward()
            raise

    for module in (graph, torch.autograd):
        setattr(module, "_engine_run_backward", run_backward)  # noqa: B010

    chosen: Any = grad_mode.set_multithreading_enabled
    choose = chosen.__init__

    @functools.wraps(choose)
    def choose_later(self: Any, mode: bool) -> None:
        _C.set_up_thread()  # or the thread's first call would choose otherwise
        choose(self, mode)

    chosen.__init__ = choose_later
