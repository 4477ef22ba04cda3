"""The backend `hccl` of a process group of torch's."""

from __future__ import annotations

from typing import Any

__all__ = ["hccl_of"]


def hccl_of(group: Any) -> Any:
    """Return the group's own part of `hccl`; None where it has none."""
    import torch

    device = torch.device("npu")
    if device not in getattr(group, "_device_types", ()):
        return None
    backend = group._get_backend(device)
    # With TORCH_DISTRIBUTED_DEBUG=DETAIL it is inside a wrapper.
    backend = getattr(backend, "wrapped_pg", backend)
    return backend if backend.name() == "hccl" else None
