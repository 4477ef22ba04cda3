"""A process group that has no peers: its collectives are recorded, and not done.

One rank of a job runs. A collective of tensors on npu is one task of a stream of the
group's. One of tensors on the CPU takes no time, and gives what it would if each
rank had the values of this one: that is what scripts agree on objects with.
"""

# torch's stubs give each method several signatures, of which this has the first.
# mypy: disable-error-code="override,assignment"

from __future__ import annotations

from collections.abc import Sequence
from functools import partialmethod
from typing import Any

import torch
from torch._C._distributed_c10d import HashStore, Logger, Reducer
from torch.distributed import ProcessGroup, distributed_c10d as dc
from torch.utils._python_dispatch import TorchDispatchMode

from npu_dispatch import _C, config, npu
from npu_dispatch.plan.work import PlannedWork, alike

__all__ = ["PlannedGroup", "install"]

Tensors = list[torch.Tensor]
Given = torch.Tensor | Sequence[torch.Tensor | Tensors]

# A rank sends and receives at once, while its group is in a collective.
_COLLECTIVES, _SENDS, _RECEIVES = range(3)


class PlannedGroup(ProcessGroup):
    """A group of `ranks`, which are numbers of the job; this is the one at `rank`."""

    def __init__(self, rank: int, ranks: Sequence[int], store: Any, name: str) -> None:
        # A class of Python's has no store, whatever torch's stubs say.
        base: Any = super()
        base.__init__(rank, len(ranks))
        self.ranks = list(ranks)
        self._store = store
        self._name = name
        self._set_group_desc("undefined")
        self._streams: dict[tuple[torch.device, int], npu.Stream] = {}
        self._coalesced: list[npu.Event] | None = None  # while calls are collected

    # What torch asks a group for. C++ looks for these names.

    def getBackendName(self) -> str:  # noqa: N802
        return "hccl"

    def getGroupName(self) -> str:  # noqa: N802
        return self._name

    def setGroupName(self, name: str) -> None:  # noqa: N802
        self._name = name

    def get_group_store(self) -> Any:
        return self._store

    def new_group(
        self, ranks: Sequence[int], *, group_name: str, **_others: Any
    ) -> PlannedGroup | None:
        """Return a group of the job; torch calls this on the group of all ranks."""
        mine = self.ranks[self.rank()]
        if mine not in ranks:
            return None
        return PlannedGroup(list(ranks).index(mine), ranks, self._store, group_name)

    # Collectives.

    def _run(self, kind: str, to: Given, by: Given, opts: Any = None) -> PlannedWork:
        """Launch a collective, or do it on the CPU.

        Only the root of a gather has results, and only that of a scatter is given any.
        """
        results, given = _flat(to), _flat(by)
        size = max(_bytes(results), _bytes(given))
        if not (results and given):
            size *= self.size()
        results, device = results or given, (results or given)[0].device
        if device.type == "npu":
            return self._launch(kind, size, results, self.ranks, device, used=given)
        at_root = kind != "reduce" or opts is None or opts.rootRank == self.rank()
        if given and at_root:
            alike(kind, results, given, opts, self.size(), self.rank())
        return PlannedWork(results)

    def _in_place(self, kind: str, tensors: Tensors, opts: Any = None) -> PlannedWork:
        return self._run(kind, tensors, tensors, opts)

    allreduce = partialmethod(_in_place, "all_reduce")
    broadcast = partialmethod(_in_place, "broadcast")
    reduce = partialmethod(_in_place, "reduce")
    allgather = all_gather_single = partialmethod(_run, "all_gather")
    gather = partialmethod(_run, "gather")
    reduce_scatter = reduce_scatter_single = partialmethod(_run, "reduce_scatter")
    scatter = partialmethod(_run, "scatter")
    alltoall = partialmethod(_run, "all_to_all")

    def all_to_all_single(
        self, output: torch.Tensor, given: torch.Tensor, *_: Any
    ) -> PlannedWork:
        return self._run("all_to_all", output, given)

    def barrier(self, opts: Any = None) -> PlannedWork:
        if npu.is_current_stream_capturing():
            raise RuntimeError("hccl: barrier cannot be captured, since the host waits")
        device = torch.device("npu", npu.current_device())
        return self._launch("barrier", 0, [], self.ranks, device, host_waits=True)

    def send(self, tensors: Tensors, to: int, tag: int = 0) -> PlannedWork:
        return self._message(tensors, self.rank(), to, _SENDS)

    def recv(self, tensors: Tensors, source: int, tag: int = 0) -> PlannedWork:
        return self._message(tensors, source, self.rank(), _RECEIVES)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> PlannedWork:
        return self.recv(tensors, (self.rank() + 1) % self.size(), tag)

    # Of several tensors, and torch's names of before, which some callers have.
    allreduce_coalesced = allreduce
    allgather_coalesced = all_gather_single_coalesced = allgather
    allgather_into_tensor_coalesced = allgather
    reduce_scatter_single_coalesced = reduce_scatter
    reduce_scatter_tensor_coalesced = reduce_scatter
    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
    alltoall_base = all_to_all_single

    # Calls that are collected are launched one by one, each with its own latency.

    def _start_coalescing(self, device: torch.device) -> None:
        self._coalesced = []

    def _end_coalescing(self, device: torch.device) -> PlannedWork:
        done, self._coalesced = self._coalesced or [], None
        return PlannedWork([], done)

    def _message(
        self, tensors: Tensors, source: int, to: int, role: int
    ) -> PlannedWork:
        if npu.is_current_stream_capturing():
            raise RuntimeError("hccl: send and recv cannot be captured")

        ranks = [self.ranks[source], self.ranks[to]]
        if tensors[0].device.type == "npu":
            size, device = _bytes(tensors), tensors[0].device
            return self._launch("send", size, tensors, ranks, device, role=role)
        for tensor in tensors if role == _RECEIVES else ():  # nobody knows what
            tensor.zero_()
        return PlannedWork(tensors)

    def _launch(
        self,
        kind: str,
        size: int,
        results: Tensors,
        ranks: list[int],
        device: torch.device,
        *,
        used: Sequence[torch.Tensor] = (),
        role: int = _COLLECTIVES,
        host_waits: bool = False,
    ) -> PlannedWork:
        # What is captured is not launched, and would be taken for what comes next.
        if npu.is_current_stream_capturing():
            return PlannedWork(results)
        if (device, role) not in self._streams:
            self._streams[device, role] = npu.Stream(device)
        stream = self._streams[device, role]
        # The quick ways: what this takes is counted as the program's own time.
        stream.wait_stream(torch.accelerator.current_stream(device))
        with stream:
            try:
                _C.plan_collective(kind, size, ranks)
            except RuntimeError:
                pass  # without a recording there is nobody to tell
            else:
                _C.submit_with_site()
        for tensor in (*results, *used):
            tensor.record_stream(stream)
        done = stream.record_event()
        if self._coalesced is not None:
            self._coalesced.append(done)
        source = self.ranks.index(ranks[0])
        return PlannedWork(
            results, [done], stream=stream, host_waits=host_waits, source=source
        )


def _flat(given: Given) -> Tensors:
    if isinstance(given, torch.Tensor):
        return [given]
    return [tensor for one in given for tensor in _flat(one)]


def _bytes(tensors: Sequence[torch.Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def install(ranks: int, rank: int = 0, per_host: int | None = None) -> None:
    """Let this process be one rank of a job of torchrun's that has no other ranks.

    A host has `per_host` of them; without it, all.
    """
    on_host = min(ranks, per_host or ranks)
    for name, value in {
        "RANK": rank,
        "LOCAL_RANK": rank % on_host,
        "WORLD_SIZE": ranks,
        "LOCAL_WORLD_SIZE": on_host,
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": 29500,
    }.items():
        config.set_for_children(name, str(value))
    ours: Any = dc  # whose functions are replaced
    ours.rendezvous = lambda *_, **__: iter([(HashStore(), rank, ranks)])
    ours._new_process_group_helper = _whole_job
    public: Any = torch.distributed
    public.monitored_barrier = ours.monitored_barrier = _monitored_barrier
    _install_ddp()


def _whole_job(
    size: int,
    rank: int,
    _ranks: list[int],
    backend: str,
    store: Any,
    name: Any,
    **_others: Any,
) -> tuple[PlannedGroup, Any]:
    """Make the group of all ranks. The others are made by its new_group()."""
    if backend == "undefined":
        backend = "hccl"
    group = PlannedGroup(rank, range(size), store, name)
    group._set_group_desc("default_pg")
    dc._register_pg_in_world(
        group,
        backend_name=backend,
        store=store,
        group_name=name,
        backend_config=str(dc.BackendConfig(dc.Backend(backend))),
        add_to_default_tag=True,
    )
    return group, store


def _monitored_barrier(group: Any = None, *_: Any, **__: Any) -> None:
    """Be torch's monitored_barrier for groups of any backend."""
    (group or dc._get_default_group()).barrier().wait()


class _ReadsWhatWasWritten(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A copy to the host gives what was copied to the device before it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._written = torch.empty(0)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is torch.ops.aten.copy_.default:
            to, given = args[:2]
            if to.device.type == "npu" and given.device.type == "cpu":
                self._written = given.clone()
            elif to.device.type == "cpu" and given.device.type == "npu":
                return to.copy_(self._written)
        return func(*args, **(kwargs or {}))


class _Reducer(Reducer):
    def _rebuild_buckets(self) -> bool:
        """Form the buckets anew, in the order in which gradients came.

        All ranks take those of rank 0, which this one is, or is like.
        """
        with _ReadsWhatWasWritten():
            return super()._rebuild_buckets()


class _Logger(Logger):
    def set_runtime_stats_and_log(self) -> None:
        """Log no times: the host waits for them, in the first ten steps alone."""


def _install_ddp() -> None:
    """Let DistributedDataParallel work where tensors on npu read as zeros.

    It reads two things back that ranks have told each other: the shapes of parameters,
    to compare them, and which gradients share a bucket.
    """
    from torch.nn.parallel import distributed as ddp

    public: Any = torch.distributed
    public.Reducer, public.Logger = _Reducer, _Logger
    # Shapes of ranks that are alike are not compared.
    module: Any = ddp
    module._verify_param_shape_across_processes = lambda *_, **__: None
