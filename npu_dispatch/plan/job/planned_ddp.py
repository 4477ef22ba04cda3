"""DistributedDataParallel where tensors on npu read as zeros.

It reads two things back that ranks have told each other: the shapes of parameters,
to compare them, and which gradients share a bucket.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._C._distributed_c10d import Logger, Reducer
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["install"]


class _ReadsWhatWasWritten(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A copy to the host gives what was copied to the device before it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._written = torch.empty(0)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is torch.ops.aten.copy_.default:
            to, given = args[:2]
            if to.device.type == "npu" and given.device.type == "cpu":
                self._written = given.clone()
            elif to.device.type == "cpu" and given.device.type == "npu":
                return to.copy_(self._written)
        return func(*args, **(kwargs or {}))


class _Reducer(Reducer):
    def _rebuild_buckets(self) -> bool:
        """Form the buckets anew, in the order in which gradients came.

        All ranks take those of rank 0, which this one is, or is like.
        """
        with _ReadsWhatWasWritten():
            return super()._rebuild_buckets()


class _Logger(Logger):
    def set_runtime_stats_and_log(self) -> None:
        """Log no times: the host waits for them, in the first ten steps alone."""


def install() -> None:
    """Replace what DDP takes from torch.distributed."""
    from torch.nn.parallel import distributed as ddp

    public: Any = torch.distributed
    public.Reducer, public.Logger = _Reducer, _Logger
    # Shapes of ranks that are alike are not compared.
    module: Any = ddp
    module._verify_param_shape_across_processes = lambda *_, **__: None
