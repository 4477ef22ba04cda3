"""Steps of optimizers are counted, so that a reader can tell how fast one trains."""

from __future__ import annotations

from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook

from npu_dispatch import _C

__all__ = ["count_steps"]


def count_steps() -> None:
    """Count every step of torch.optim's optimizers, but not those of a replay."""
    register_optimizer_step_post_hook(_stepped)


# Where step() is compiled, torch breaks the graph before the hooks.
def _stepped(*_: Any) -> None:
    _C.count_optimizer_step()
