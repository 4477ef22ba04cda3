"""The one function of torch_npu._C that libraries call."""

from __future__ import annotations

import torch


def _storage_Use_Count(storage: int) -> int:  # noqa: N802
    """Return how many owners the storage has that `untyped_storage()._cdata` names."""
    count: int = torch._C._storage_Use_Count(storage)
    return count
