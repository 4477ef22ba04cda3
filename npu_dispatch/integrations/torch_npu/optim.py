"""Optimisers under torch_npu.optim's names."""

from __future__ import annotations

from typing import Any

import torch

from npu_dispatch.import_alias import refused_names

__all__ = ["NpuFusedAdam", "NpuFusedAdamW", "NpuFusedSGD"]


class NpuFusedAdamW(torch.optim.AdamW):
    """torch.optim.AdamW over lists of parameters at once; the same numbers."""

    def __init__(self, params: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(params, *args, **{"foreach": True, **kwargs})

    def npu_fused_step(self, closure: Any = None) -> Any:
        """Do what step() does."""
        return self.step(closure)


class NpuFusedAdam(torch.optim.Adam):
    """torch.optim.Adam over lists of parameters at once; the same numbers."""

    def __init__(self, params: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(params, *args, **{"foreach": True, **kwargs})


class NpuFusedSGD(torch.optim.SGD):
    """torch.optim.SGD over lists of parameters at once; the same numbers."""

    def __init__(self, params: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(params, *args, **{"foreach": True, **kwargs})


__getattr__ = refused_names("torch_npu.optim")
