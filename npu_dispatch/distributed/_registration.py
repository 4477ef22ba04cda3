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
from npu_dispatch.distributed._backend import hccl_of
from npu_dispatch.distributed._coalescing import ending_with_exceptions
from npu_dispatch.distributed._exit import give_up_when_failed
from npu_dispatch.distributed._host_place import start_noting
from npu_dispatch.distributed._monitored_barrier import of_hccl_too
from npu_dispatch.distributed._saved_calls import save_at_a_failure
from npu_dispatch.npu.runtime.device_error import raise_as

__all__ = ["register"]


def register() -> None:
    """Register the backend. A second call does nothing."""
    from torch.distributed import distributed_c10d as dc

    from npu_dispatch.distributed import DistributedError

    if "HCCL" in dc.Backend._plugins:
        return
    raise_as("hccl:", DistributedError)
    _C.bind_group()
    dc.Backend.register_backend("hccl", _make_group, extended_api=True, devices=["npu"])
    dc._new_process_group_helper = _choosing_hccl(dc._new_process_group_helper)
    public: Any = sys.modules["torch.distributed"]  # has names of dc, too
    managed = ending_with_exceptions(dc._coalescing_manager)
    public._coalescing_manager = dc._coalescing_manager = managed
    public.monitored_barrier = dc.monitored_barrier = of_hccl_too(dc.monitored_barrier)
    from torch.nn.parallel import DistributedDataParallel

    ddp: Any = DistributedDataParallel
    ddp._check_comm_hook = _reducing_bf16(ddp._check_comm_hook)
    import_alias.after_import(
        "torch.distributed.optim.zero_redundancy_optimizer", _finish_consolidation
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


def _choosing_hccl(make: Any) -> Any:
    """Return torch's maker of groups, which does not know custom backends.

    Without a backend's name it takes gloo to be the group's own, and with
    "cpu:gloo,npu:hccl" none: DDP and object collectives then find nothing.
    """
    import torch

    @wraps(make)
    def made(
        size: int,
        rank: int,
        ranks: list[int],
        backend: str,
        store: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
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

    return made


def _reducing_bf16(check: Any) -> Any:
    """Return DDP's check of hooks, which knows by name who reduces bf16."""

    @wraps(check)
    def checked(self: Any, hook: Any) -> None:
        named = getattr(hook, "__name__", "")
        if self.device_type == "npu" and named.startswith("bf16_compress_"):

            @wraps(hook)  # its signature is checked too
            def reduced(state: Any, bucket: Any) -> Any:
                return hook(state, bucket)

            reduced.__name__ = "reduced_on_npu"
            hook = reduced
        check(self, hook)

    return checked


def _finish_consolidation() -> None:
    """Let a consolidated state be read at once: it is copied without waiting."""
    from torch.distributed.optim import zero_redundancy_optimizer

    optimizer: Any = zero_redundancy_optimizer.ZeroRedundancyOptimizer
    consolidate = optimizer.consolidate_state_dict

    @wraps(consolidate)
    def consolidated(self: Any, to: int = 0) -> None:
        import torch

        consolidate(self, to)
        if self._default_device.type == "npu":
            torch.accelerator.synchronize(self._default_device)

    optimizer.consolidate_state_dict = consolidated
