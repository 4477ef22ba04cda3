"""What torch's own functions of groups do where a group is of `hccl`."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from npu_dispatch import _C
from npu_dispatch.npu.runtime.device_error import from_failure

_POLL_S = 0.002  # between two looks at the store
_OP = "hccl:monitored_barrier"
_PASSED = "passed"


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


@contextlib.contextmanager
def coalescing(
    manager: Any, group: Any = None, device: Any = None, async_ops: bool = False
) -> Iterator[Any]:
    """Let coalesced calls that end with an exception leave the group as it was.

    torch's manager goes on collecting the calls of the group then, and so does the
    backend: collectives that follow do nothing, and messages are never sent.
    """
    from torch.distributed import distributed_c10d as dc

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


def reduce_gathered(backward: Any, ctx: Any, *grads: Any) -> Any:
    """Give torch.distributed.nn's all_gather the gradient that it has with nccl.

    With other backends torch exchanges gradients into tensors of the same strides,
    which collectives need not accept.
    """
    if grads[0].device.type != "npu":
        return backward(ctx, *grads)
    return None, _reduced(ctx.group, grads)


def reduce_gathered_rows(backward: Any, ctx: Any, grad: Any) -> Any:
    """Do that for _all_gather_base, for which torch refuses other backends."""
    from torch import distributed as dist

    if grad.device.type != "npu":
        return backward(ctx, grad)
    ranks = grad.tensor_split(dist.get_world_size(ctx.group))
    return None, _reduced(ctx.group, ranks), None


def _reduced(group: Any, grads: Any) -> Any:
    import torch
    from torch import distributed as dist
    from torch.distributed.nn.functional import _Reduce_Scatter

    reduce_scatter: Any = _Reduce_Scatter.apply
    own = torch.empty_like(grads[dist.get_rank(group)])
    return reduce_scatter(dist.ReduceOp.SUM, group, own, *grads)


def set_timeout(set_known: Any, timeout: timedelta, group: Any = None) -> None:
    """Set the timeout of hccl, too; torch sets those of nccl and gloo alone."""
    from torch.distributed import distributed_c10d as dc

    group = group or dc._get_default_group()
    if dc._rank_not_in_group(group) or hccl_of(group) is None:
        set_known(timeout, group)
    else:
        group.set_timeout(timeout)


def monitored_barrier(
    barrier: Any, group: Any = None, timeout: Any = None, wait_all_ranks: bool = False
) -> None:
    """Hold the barrier, which torch allows gloo alone, in groups of hccl, too.

    The ranks meet in the group's store, so that a rank which does not come costs no
    connection: after an error the group is as good as before.
    """
    from torch.distributed import distributed_c10d as dc

    ours = None
    if not dc._rank_not_in_group(group):
        ours = hccl_of(group or dc._get_default_group())
    if ours is None:
        barrier(group, timeout, wait_all_ranks)
        return
    if timeout is None:
        timeout = ours.options._timeout
    elif isinstance(timeout, float):
        warnings.warn(
            f"monitored_barrier: pass timeout=timedelta(seconds={timeout})",
            stacklevel=3,
        )
        timeout = timedelta(seconds=timeout)
    dc._check_valid_timeout(timeout)
    name = (group or dc._get_default_group()).group_name
    _Meeting(ours, name, timeout).hold(wait_all_ranks)


class _Meeting:
    """One call of one rank. Each rank counts its own calls in the store."""

    def __init__(self, backend: Any, name: str, timeout: timedelta) -> None:
        from torch._C._distributed_c10d import PrefixStore

        self._store = PrefixStore("monitored_barrier", backend.store)
        self._rank, self._size = backend.rank(), backend.size()
        self._name, self._timeout = name, timeout
        self._end = time.monotonic() + timeout.total_seconds()
        self._number = self._store.add(f"calls/{self._rank}", 1)
        self._missing = set(range(self._size)) - {self._rank}

    def hold(self, wait_all_ranks: bool) -> None:
        answer = f"answer/{self._number}"
        if self._rank:
            self._wait_for(answer)
            return
        while not self._all_have_come():
            if self._is_late():
                named = sorted(self._missing)[: None if wait_all_ranks else 1]
                text = f"not launched by: rank {', '.join(map(str, named))}"
                self._store.set(answer, text)
                self._give_up(f"{self._late()}; {text}")
        self._store.set(answer, _PASSED)
        # All have come here, so all have read the answer before this one.
        self._store.delete_key(f"answer/{self._number - 1}")

    def _wait_for(self, answer: str) -> None:
        while not self._store.check([answer]):
            if self._is_late():
                self._all_have_come()
                named = ", ".join(map(str, sorted(self._missing)))
                self._give_up(
                    f"{self._late()} for rank 0, which answers when all have come"
                    + (f"; not launched by: rank {named}" if named else "")
                )
        text = self._store.get(answer).decode()
        if text != _PASSED:
            self._give_up(f"rank 0 has given up; {text}")

    def _all_have_come(self) -> bool:
        self._missing = {
            rank
            for rank in self._missing
            if self._store.add(f"calls/{rank}", 0) < self._number
        }
        return not self._missing

    def _is_late(self) -> bool:
        if time.monotonic() > self._end:
            return True
        time.sleep(_POLL_S)
        return False

    def _late(self) -> str:
        return f"timed out after {self._timeout.total_seconds() * 1000:.0f} ms"

    def _give_up(self, why: str) -> None:
        text = (
            f"group '{self._name}', rank {self._rank} of {self._size}, "
            f"monitored_barrier #{self._number - 1}: {why}"
        )
        raise from_failure(
            {
                "op": _OP,
                "message": f"{_OP} failed: {text}",
                "text": text,
                "code": 0,  # no stream has failed
                "device": -1,
                "stream": -1,
                "task": -1,
                "arguments": "",
                "site": _C.current_call_site(),
                "forward_site": 0,
                "cause": None,
            }
        )
