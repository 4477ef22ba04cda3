"""Makes torch.distributed know `hccl`, and choose it for npu.

Runs once torch.distributed has been imported, which it never causes.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from functools import wraps
from typing import Any

from npu_dispatch import _C, import_alias
from npu_dispatch.config import variable
from npu_dispatch.distributed._exit import give_up_when_failed
from npu_dispatch.distributed._group_calls import (
    coalescing,
    hccl_of,
    monitored_barrier,
    reduce_gathered,
    reduce_gathered_rows,
    set_timeout,
)
from npu_dispatch.distributed._host_place import start_noting
from npu_dispatch.distributed._saved_calls import save_at_a_failure
from npu_dispatch.npu.patches.changes import replace
from npu_dispatch.npu.patches.training import scaler_without_device
from npu_dispatch.npu.runtime.device_error import raise_as


def register() -> None:
    """Register the backend. A second call does nothing."""
    from torch.distributed import distributed_c10d as dc

    from npu_dispatch.distributed import DistributedError

    if "HCCL" in dc.Backend._plugins:
        return
    raise_as("hccl:", DistributedError)
    _C.bind_group()
    dc.Backend.register_backend("hccl", _make_group, extended_api=True, devices=["npu"])
    ours = "torch.distributed.distributed_c10d"
    replace(_make_with_hccl, f"{ours}:_new_process_group_helper")
    public: Any = sys.modules["torch.distributed"]  # has names of dc, too
    replace(coalescing, f"{ours}:_coalescing_manager")
    public._coalescing_manager = dc._coalescing_manager
    replace(monitored_barrier, f"{ours}:monitored_barrier")
    public.monitored_barrier = dc.monitored_barrier
    # Later versions of torch have set_timeout() instead, which asks each backend.
    if hasattr(dc, "_set_pg_timeout"):
        replace(set_timeout, f"{ours}:_set_pg_timeout")
    replace(_check_hook, "torch.nn.parallel:DistributedDataParallel._check_comm_hook")
    import_alias.after_import(
        "torch.distributed.optim.zero_redundancy_optimizer", _finish_consolidation
    )
    import_alias.after_import("torch.distributed.nn.functional", _serve_autograd)
    import_alias.after_import(
        "torch.distributed.fsdp.sharded_grad_scaler", _scale_shards
    )


def _make_group(options: Any, _backend_options: Any) -> Any:
    """Connect the ranks, which all call this. torch.distributed's creator."""
    rank, size = options.group_rank, options.group_size
    timeout: timedelta = options.timeout
    gloo = _connect(options.store, rank, size, timeout) if size > 1 else None
    give_up_when_failed()
    milliseconds = int(timeout.total_seconds() * 1000)
    ranks = list(options.global_ranks_in_group) or list(range(size))
    return _C.make_group(
        options.store, gloo, rank, ranks, str(options.group_id), milliseconds
    )


def _of_this_start(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    # Here, since `import torch` imports this module and makes no group.
    from npu_dispatch.distributed import _rejoin

    if not _rejoin.outlives_ranks():
        return store
    return _rejoin.store_of_this_start(store, rank, size, timeout)


def _connect(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    """Connect the ranks with Gloo, at addresses that other hosts reach.

    Left alone, Gloo takes the address of the host's name, which often stands for
    127.0.1.1. Raises DistBackendError in a job that has failed, since a rank may
    not come any more.
    """
    from torch.distributed import DistBackendError, ProcessGroupGloo

    start_noting()
    if failure := _C.job_failure():
        raise DistBackendError(f"hccl: no group can be made: {failure}")
    if variable("GLOO_SOCKET_IFNAME"):  # which it reads
        return ProcessGroupGloo(store, rank, size, timeout=timeout)
    gloo: Any = ProcessGroupGloo
    options = gloo._Options()
    options._timeout = timeout
    options._devices = [gloo.create_device(hostname=_C.own_address(size))]
    return gloo(store, rank, size, options)


def _make_with_hccl(
    make: Any,
    size: int,
    rank: int,
    ranks: list[int],
    backend: str,
    store: Any,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Make a group; torch's maker of groups does not know custom backends.

    Without a backend's name it takes gloo to be the group's own, and with
    "cpu:gloo,npu:hccl" none: DDP and object collectives then find nothing.
    """
    import torch

    if backend == "undefined" and torch._C._get_accelerator().type == "npu":
        backend = "hccl"
    # No ranks: the default group, whose store the others' are parts of.
    if not ranks:
        timeout: timedelta = kwargs["timeout"]
        with_hccl = "hccl" in backend
        if with_hccl:
            store = _of_this_start(store, rank, size, timeout)
        milliseconds = int(timeout.total_seconds() * 1000)
        _C.join_job(store, rank, size if with_hccl else 1, milliseconds)
        if with_hccl and size > 1:
            save_at_a_failure()
    result = make(size, rank, ranks, backend, store, *args, **kwargs)
    group = result[0]
    if (ours := hccl_of(group)) is not None:
        from torch.distributed import ProcessGroup

        group._set_default_backend(ProcessGroup.BackendType.CUSTOM)
        _C.describe_group(ours, group.group_desc)
    return result


def _check_hook(check: Any, ddp: Any, hook: Any) -> None:
    """Let DDP, which knows by name who reduces bf16, accept that npu does."""
    named = getattr(hook, "__name__", "")
    if ddp.device_type == "npu" and named.startswith("bf16_compress_"):

        @wraps(hook)  # its signature is checked too
        def reduced(state: Any, bucket: Any) -> Any:
            return hook(state, bucket)

        reduced.__name__ = "reduced_on_npu"
        hook = reduced
    check(ddp, hook)


def _serve_autograd() -> None:
    functions = "torch.distributed.nn.functional"
    replace(reduce_gathered, f"{functions}:_AllGather.backward")
    replace(reduce_gathered_rows, f"{functions}:_AllGatherBase.backward")


def _scale_shards() -> None:
    scaler = "torch.distributed.fsdp.sharded_grad_scaler:ShardedGradScaler"
    replace(scaler_without_device, f"{scaler}.__init__")


def _finish_consolidation() -> None:
    """Let a consolidated state be read at once: it is copied without waiting."""
    replace(
        _consolidate,
        "torch.distributed.optim.zero_redundancy_optimizer:"
        "ZeroRedundancyOptimizer.consolidate_state_dict",
    )


def _consolidate(consolidate: Any, optimizer: Any, to: int = 0) -> None:
    import torch

    consolidate(optimizer, to)
    if optimizer._default_device.type == "npu":
        torch.accelerator.synchronize(optimizer._default_device)
