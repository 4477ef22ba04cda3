"""Steps of optimizers are counted, so that a reader can tell how fast one trains."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from npu_dispatch import _C

__all__ = ["count_steps"]


def count_steps() -> None:
    """Count every step of torch.optim's optimizers; compiled ones are replays."""
    register_optimizer_step_post_hook(_stepped)


def _stepped(*_: Any) -> None:
    # Dynamo evaluates the condition, so the call breaks no graph.
    if not torch.compiler.is_compiling():
        _C.count_optimizer_step()
