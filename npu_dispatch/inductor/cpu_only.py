"""Passes of Inductor's scheduler that leave graphs of `cpu` alone."""

from __future__ import annotations

from torch._inductor.scheduler import BaseSchedulerNode

__all__ = ["treat_as_cpu"]


def _is_cpu(self: BaseSchedulerNode) -> bool:
    device = self.get_device()
    return device is not None and device.type in ("cpu", "npu")


def treat_as_cpu() -> None:
    """Keep loop reordering, reindexing and index inversion off `npu` graphs too.

    These passes rewrite groups into a form that only Triton's code generation reads,
    and this method is all they ask to learn whether to rewrite a node.
    """
    BaseSchedulerNode.is_cpu = _is_cpu  # type: ignore[method-assign]
