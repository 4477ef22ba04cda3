"""torch_npu.distributed: whether collectives are there; torch.distributed has them."""

from __future__ import annotations

from torch.distributed import is_available

from npu_dispatch.import_alias import refused_names

__all__ = ["is_available", "is_hccl_available"]


def is_hccl_available() -> bool:
    """Return whether torch.distributed has the backend hccl: wherever it is there."""
    return is_available()


__getattr__ = refused_names("torch_npu.distributed")
