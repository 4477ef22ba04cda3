"""More than one process: the backend `hccl` of torch.distributed.

`init_process_group()` chooses it for npu; docs/distributed.md says how.
"""

from __future__ import annotations

from npu_dispatch.distributed._error import DistributedError

__all__ = ["DistributedError"]
