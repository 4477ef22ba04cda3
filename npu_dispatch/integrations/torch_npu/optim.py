"""Optimisers under torch_npu.optim's names."""

from __future__ import annotations

from typing import Any

import torch

from npu_dispatch.import_alias import refused_names

__all__ = ["NpuFusedAdam", "NpuFusedAdamW", "NpuFusedSGD"]


class _Foreach:
    """An optimizer over lists of parameters at once; the same numbers as torch's."""

    def __init__(self, params: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(params, *args, **{"foreach": True, **kwargs})  # type: ignore[call-arg]


class NpuFusedAdamW(_Foreach, torch.optim.AdamW):
    """torch.optim.AdamW over lists of parameters at once; the same numbers."""

    def npu_fused_step(self, closure: Any = None) -> Any:
        """Do what step() does."""
        return self.step(closure)


class NpuFusedAdam(_Foreach, torch.optim.Adam):
    """torch.optim.Adam over lists of parameters at once; the same numbers."""


class NpuFusedSGD(_Foreach, torch.optim.SGD):
    """torch.optim.SGD over lists of parameters at once; the same numbers."""


__getattr__ = refused_names("torch_npu.optim")
