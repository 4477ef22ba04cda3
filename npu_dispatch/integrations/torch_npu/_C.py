"""The functions of torch_npu._C that libraries call."""

from __future__ import annotations

import torch

from npu_dispatch._C import (
    attach_out_of_memory_observer as _npu_attach_out_of_memory_observer,
)
from npu_dispatch.import_alias import refused_names

__all__ = ["_npu_attach_out_of_memory_observer", "_storage_Use_Count"]


def _storage_Use_Count(storage: int) -> int:  # noqa: N802
    """Return how many owners the storage has that `untyped_storage()._cdata` names."""
    count: int = torch._C._storage_Use_Count(storage)
    return count


__getattr__ = refused_names("torch_npu._C")
