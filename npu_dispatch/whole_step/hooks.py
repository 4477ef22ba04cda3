"""Hooks that a step calls and a replay would not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

__all__ = ["count_step", "uncaptured"]

# Hooks from here count steps and change nothing.
_COUNTING = tuple(
    str(folder)
    for folder in (Path(__file__).parents[1], Path(torch.__file__).parent / "profiler")
)


def _counts(hook: Callable[..., Any]) -> bool:
    code = getattr(hook, "__code__", None)
    return code is not None and code.co_filename.startswith(_COUNTING)


def uncaptured(optimizer: torch.optim.Optimizer) -> str:
    """Say which hooks, other than those of tensors, a replay would leave out; or ''."""
    of_one: Any = optimizer
    if of_one._optimizer_step_pre_hooks or of_one._optimizer_step_post_hooks:
        return "hooks of the optimizer's step() are Python code"
    for what, hooks in (
        ("hooks of all optimizers' steps", optimizers._global_optimizer_pre_hooks),
        ("hooks of all optimizers' steps", optimizers._global_optimizer_post_hooks),
        ("hooks of all modules", modules._global_forward_pre_hooks),
        ("hooks of all modules", modules._global_forward_hooks),
        ("hooks of all modules", modules._global_backward_pre_hooks),
        ("hooks of all modules", modules._global_backward_hooks),
    ):
        # Other threads' captures have a hook for a moment.
        if hooks and not all(map(_counts, list(hooks.values()))):
            return f"{what} are Python code"
    if torch._C._autograd._top_saved_tensors_default_hooks(False) is not None:
        return "hooks of saved tensors are Python code"
    return ""


def count_step(optimizer: torch.optim.Optimizer) -> None:
    """Tell those who count steps that a replay has taken one."""
    for hook in list(optimizers._global_optimizer_post_hooks.values()):
        hook(optimizer, (), {})
