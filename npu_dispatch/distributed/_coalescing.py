"""Coalesced calls that end with an exception leave the group as it was.

torch's manager goes on collecting the calls of the group then, and so does the
backend: collectives that follow do nothing, and messages are never sent.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import wraps
from typing import Any

from npu_dispatch.distributed._backend import hccl_of

__all__ = ["ending_with_exceptions"]


def ending_with_exceptions(manager: Any) -> Any:
    """Return torch's manager of coalesced calls, which no exception leaves open."""
    from torch.distributed import distributed_c10d as dc

    @contextlib.contextmanager
    @wraps(manager)
    def managed(
        group: Any = None, device: Any = None, async_ops: bool = False
    ) -> Iterator[Any]:
        group = group or dc._get_default_group()
        collected = dc._world.pg_coalesce_state
        # Within another one of the same group, the outer one cleans up.
        ours = None if group in collected else hccl_of(group)
        try:
            with manager(group, device, async_ops) as calls:
                yield calls
        except BaseException:
            if ours is not None:
                collected.pop(group, None)
                ours.cancel_coalescing()
            raise

    return managed
