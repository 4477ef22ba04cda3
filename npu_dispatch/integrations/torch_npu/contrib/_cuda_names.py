"""What CUDA's names in torch say where the npu has no function of that name.

Where a program asks what CUDA can do, the answer says what the npu can do, in
CUDA's numbers. What only a GPU can do raises an error of one sentence. The names are
those of torch.cuda, torch.backends.cuda, and those of torch._C that torch's own code
and libraries call.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch
from torch.nn.parallel import comm as parallel_comm

from npu_dispatch import _C, npu
from npu_dispatch.config import Config
from npu_dispatch.import_alias import refused_names
from npu_dispatch.npu import comm, legacy
from npu_dispatch.npu.graphs import callables
from npu_dispatch.npu.memory import history, pool
from npu_dispatch.npu.runtime import devices
from npu_dispatch.npu.streams import external
from npu_dispatch.npu.vendor import npu_runtime

# The least capability of a GPU that computes with bfloat16, as the npu does.
_CAPABILITY = (8, 0)
# The oldest version of CUDA that this release of torch is built for.
_CUDA_VERSION = "12.6"
# The oldest version of nccl that reduces bfloat16 and takes means, as hccl does.
_NCCL_VERSION = (2, 10, 3)


# The modules that have torch's function for the name of the device in use.
_NAME_THE_DEVICE = (
    "torch._utils",
    "torch.nn.parallel.data_parallel",
    "torch.distributed.checkpoint.filesystem",
)
_TUNABLE = ("is_enabled", "tuning_is_enabled", "record_untuned_is_enabled")
_ATTENTION = ("cudnn", "efficient", "flash")
_WORKSPACES = (
    "blas_workspace_size",
    "cublas_workspace_size",
    "cublaslt_workspace_size",
)
_CUDA_GRAPH = torch.cuda.CUDAGraph


class _Error(int):
    success = 0


class _Cudart:
    """torch.cuda.cudart(): torch.npu.npurt() under CUDA's names."""

    cudaError = _Error

    def cudaGetErrorString(self, error: int) -> str:  # noqa: N802
        return "no error" if error == 0 else f"error {int(error)} of the npu's runtime"

    def cudaProfilerStart(self) -> int:  # noqa: N802
        npu.profiler.start()
        return 0

    def cudaProfilerStop(self) -> int:  # noqa: N802
        npu.profiler.stop()
        return 0

    def __getattr__(self, name: str) -> Any:
        ours = getattr(npu_runtime.npurt(), "npu" + name.removeprefix("cuda"), None)
        if ours is None or not name.startswith("cuda"):
            raise AttributeError(
                f"torch.cuda.cudart().{name} is CUDA's runtime: of that, the npu has "
                "only what torch.npu.npurt() and torch.npu.profiler do"
            )
        return ours


# The names that raise, with the reason.
REFUSED: dict[str, str] = {}


def _refusal(name: str, why: str) -> Callable[..., Any]:
    REFUSED[name] = why

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"{name}: {why}")

    return refuse


def _refuse(module: Any, names: str, why: str) -> None:
    for name in names.split():
        original = getattr(module, name)
        owner = module.__name__
        if isinstance(module, type):
            owner = f"{module.__module__}.{owner}"
        full = f"{owner}.{name}".removesuffix(".__init__")
        refuse = functools.wraps(original)(_refusal(full, why))
        setattr(module, name, refuse)


def _no(*args: Any, **kwargs: Any) -> bool:
    return False


def _get_device_capability(device: Any = None) -> tuple[int, int]:
    """Return TORCH_NPU_DEVICE_CAPABILITY, or (8, 0) where it is not set."""
    if Config.read().device_capability:
        return npu.get_device_capability(device) or _CAPABILITY
    return _CAPABILITY


class _Properties(devices.DeviceProperties):
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"get_device_properties().{name} is of GPUs; the npu has "
            + ", ".join(field.name for field in dataclasses.fields(self))
        )


def _get_device_properties(device: Any = None) -> Any:
    """Return torch.npu's properties, with the capability as `major` and `minor`."""
    major, minor = _get_device_capability(device)
    found = dataclasses.asdict(npu.get_device_properties(device))
    return _Properties(**found | {"major": major, "minor": minor})


def _is_bf16_supported(including_emulation: bool = True) -> bool:
    return npu.is_bf16_supported(including_emulation)


class _ExternalStream(external.ExternalStream):
    """torch.npu's; 0 is the default stream, as CUDA's null stream is."""

    def __new__(cls, stream_ptr: int, device: Any = None, **kwargs: Any) -> Any:
        if stream_ptr == 0:
            return npu.default_stream(device)
        return super().__new__(cls, stream_ptr, device, **kwargs)


def _get_stream_from_external(data_ptr: int, device: Any = None) -> Any:
    return _ExternalStream(data_ptr, device)


def _device_memory_used(device: Any = None) -> int:
    """Return how many bytes of the device's memory are taken."""
    free, total = npu.mem_get_info(device)
    return total - free


def _caching_allocator_enable(value: bool = True) -> None:
    if not value:
        raise RuntimeError(
            "torch.cuda.caching_allocator_enable(False): the npu's memory is "
            "stream-ordered, which needs its caching allocator"
        )


@contextlib.contextmanager
def _caching_allocator_disabled() -> Iterator[None]:
    _caching_allocator_enable(False)
    yield


def _one_per_device(tensors: Any) -> bool:
    """Return whether nccl could take these: dense tensors, each on another npu."""
    plain = all(
        t.device.type == "npu" and not t.is_sparse and t.is_contiguous()
        for t in tensors
    )
    return plain and len({t.device for t in tensors}) == len(list(tensors))


class _SparseType(type):
    dtype: torch.dtype

    def __instancecheck__(cls, instance: object) -> bool:
        return (
            isinstance(instance, torch.Tensor)
            and instance.is_sparse
            and instance.device.type == "npu"
            and instance.dtype == cls.dtype
        )

    def __call__(cls, *args: Any) -> torch.Tensor:
        args = args or ((0,),)
        return torch.sparse_coo_tensor(*args, dtype=cls.dtype, device="npu")


def _sparse_type(name: str, dtype: torch.dtype) -> type:
    return _SparseType(name, (), {"__module__": "torch.cuda.sparse", "dtype": dtype})


def _record_memory_history(enabled: Any = "all", *args: Any, **kwargs: Any) -> None:
    """Record as torch.npu's does, or for a bool as torch's older function did."""
    if isinstance(enabled, bool):
        stacks = "state" if kwargs.pop("record_context", True) else None
        every = kwargs.pop("trace_alloc_record_context", False)
        kwargs["context"] = "all" if every else stacks
        kwargs["max_entries"] = kwargs.pop("trace_alloc_max_entries", 1)
        kwargs.pop("record_context_cpp", None)
        enabled = "all" if enabled else None
    history._record_memory_history(enabled, *args, **kwargs)


class _PlanCaches:
    """The npu's Fourier transforms keep no plans, so each device's cache is empty."""

    size = 0
    max_size = 0

    def clear(self) -> None:
        """Do nothing: there is no plan."""

    def __getitem__(self, device: Any) -> _PlanCaches:
        return self


class _Library:
    """preferred_linalg_library and the like, which only return what was chosen."""

    def __init__(self, function: Any, names: dict[str, Any]) -> None:
        self._function, self._names = function, names
        self._chosen = function()

    def __call__(self, backend: Any = None) -> Any:
        if isinstance(backend, str):
            if backend not in self._names:
                return self._function(backend)  # which says what there is
            self._chosen = self._names[backend]
        elif backend is not None:
            self._chosen = backend
        return self._chosen


class _AllocatorState:
    """The type of CUDA's allocator checkpoints, of which the npu makes none."""


def _current_raw_stream(device: int) -> int:
    return npu.current_stream(device).npu_stream


def _set_stream(stream_id: int, device_index: int, device_type: int) -> None:
    npu.set_stream(npu.Stream(stream_id=stream_id, device_index=device_index))


def _begin_allocate_to_pool(device: int, mempool_id: tuple[int, int]) -> None:
    number = mempool_id[1]
    _C.hold_pool(device, number, False, True)
    _C.begin_pool(device, number, pool.plugged.get(number, 0))


def _apart(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls it: Dynamo knows each object under one name."""
    return lambda *args, **kwargs: function(*args, **kwargs)


_IN_C: dict[str, Callable[..., Any]] = {
    # Called with device, bytes asked for, bytes of the device, bytes of it free.
    "_cuda_attach_out_of_memory_observer": _C.attach_out_of_memory_observer,
    "_cuda_beginAllocateCurrentThreadToPool": _begin_allocate_to_pool,
    "_cuda_clearCublasWorkspaces": lambda: None,  # products keep no workspace
    "_cuda_cudaCachingAllocator_is_enabled": lambda: True,
    "_cuda_emptyCache": npu.empty_cache,
    "_cuda_endAllocateToPool": lambda device, mempool_id: _C.end_pool(device),
    "_cuda_exchangeDevice": npu._exchange_device,
    "_cuda_getCurrentRawStream": _current_raw_stream,
    "_cuda_getDevice": npu.current_device,
    "_cuda_getDeviceCount": npu.device_count,
    "_cuda_init": npu.init,
    "_cuda_isCurrentStreamCapturing": npu.is_current_stream_capturing,
    "_cuda_isInBadFork": npu._is_in_bad_fork,
    "_cuda_maybeExchangeDevice": npu._maybe_exchange_device,
    "_cuda_releasePool": lambda device, its_id: _C.release_pool(device, its_id[1]),
    "_cuda_setDevice": npu.set_device,
    "_cuda_setStream": _set_stream,
    "_cuda_synchronize": npu.synchronize,
}


def _replacements() -> dict[Any, dict[str, Any]]:
    """Return what replaces names of torch, by the module that has them."""
    cuda: Any = torch.cuda
    backends: Any = torch.backends.cuda
    return {
        torch.version: {"cuda": _CUDA_VERSION},
        cuda: {
            "_cudart": _Cudart(),
            "ExternalStream": _ExternalStream,
            "current_solver_handle": npu.current_blas_handle,
            "device_memory_used": _device_memory_used,
            "get_device_capability": _get_device_capability,
            "get_device_properties": _get_device_properties,
            "get_stream_from_external": _get_stream_from_external,
            "is_bf16_supported": _is_bf16_supported,
            "is_tf32_supported": _no,
        },
        cuda.amp.common: {"amp_definitely_not_available": _no},
        cuda.graphs: {"make_graphed_callables": callables.make_graphed_callables},
        cuda.memory: {
            "_record_memory_history": _record_memory_history,
            "caching_allocator_disabled": _caching_allocator_disabled,
            "caching_allocator_enable": _caching_allocator_enable,
        },
        cuda.nccl: {"version": lambda: _NCCL_VERSION, "is_available": _one_per_device},
        cuda.streams: {"ExternalStream": _ExternalStream},
        cuda.tunable: dict.fromkeys(_TUNABLE, _no),
        backends: {
            **{f"can_use_{name}_attention": _no for name in _ATTENTION},
            **dict.fromkeys(_WORKSPACES, lambda *args: 0),
            "cufft_plan_cache": _PlanCaches(),
            "is_built": lambda: True,
            "preferred_blas_library": _Library(
                backends.preferred_blas_library, backends._BlasBackends
            ),
            "preferred_linalg_library": _Library(
                backends.preferred_linalg_library, backends._LinalgBackends
            ),
        },
        torch._C: {
            "__getattr__": refused_names("torch._C", "_cuda"),
            "_cuda_CUDAAllocator_AllocatorState": _AllocatorState,
            **{name: _apart(ours) for name, ours in _IN_C.items()},
        },
        parallel_comm: {name: getattr(comm, name) for name in comm.__all__},
    }


def _modules() -> dict[str, ModuleType]:
    return {n: m for n, m in sys.modules.items() if n.partition("torch.cuda")[0] == ""}


def load_all() -> dict[str, Any]:
    """Import torch.cuda's modules; return what they define, by its full name.

    All of them are imported, as a later import would bring CUDA's functions back.
    """
    for found in pkgutil.iter_modules(torch.cuda.__path__):
        if not found.name.startswith("_"):
            importlib.import_module(f"torch.cuda.{found.name}")
    return {
        f"{module}.{name}": value
        for module, loaded in _modules().items()
        for name, value in vars(loaded).items()
        if getattr(value, "__module__", None) == module
    }


def replace_where_imported(before: dict[str, Any]) -> None:
    """Let torch.cuda's modules call the replacements of what they imported.

    before: what load_all() returned.
    """
    stand_ins = {}
    for full, value in before.items():
        module, _, name = full.rpartition(".")
        now = getattr(sys.modules[module], name, value)
        if now is not value:
            stand_ins[id(value)] = now
    for loaded in _modules().values():
        for name, value in list(vars(loaded).items()):
            if id(value) in stand_ins:
                setattr(loaded, name, stand_ins[id(value)])


def fill_in() -> None:
    """Replace the names of CUDA that torch.npu has not."""
    for module, names in _replacements().items():
        for name, ours in names.items():
            setattr(module, name, ours)
    cuda: Any = torch.cuda
    for name in _NAME_THE_DEVICE:
        if loaded := sys.modules.get(name):
            loaded._get_available_device_type = lambda: "npu"  # type: ignore[attr-defined]
    for name, dtype in (("Float", torch.complex64), ("Double", torch.complex128)):
        storage = legacy._storage(f"Complex{name}", dtype)
        setattr(cuda, f"Complex{name}Storage", storage)
    for name, dtype in legacy._TYPES.items():
        if hasattr(cuda.sparse, f"{name}Tensor"):
            made = _sparse_type(f"{name}Tensor", dtype)
            setattr(cuda.sparse, f"{name}Tensor", made)
    _refuse(
        cuda.nccl,
        "all_gather all_reduce broadcast reduce reduce_scatter init_rank unique_id",
        "NCCL is of GPUs; use torch.cuda.comm between devices of one process and "
        "torch.distributed between processes",
    )
    _refuse_tuning(cuda.tunable)
    _refuse_hooks(cuda.graphs)
    no_files = "files on GPUDirect Storage are not supported on the npu"
    own: Any = torch._C
    threads = "memory of one thread goes to a pool: use torch.cuda.use_mem_pool()"
    _refuse(own, "_cuda_beginAllocateToPool", threads)
    _refuse(cuda, "_compile_kernel", "the npu's kernels are this machine's code")
    _refuse(cuda.gds, "gds_register_buffer gds_deregister_buffer", no_files)
    _refuse(cuda.gds.GdsFile, "__init__", no_files)
    why = "graphs of the npu are not CUDA's; NPUGraph.nodes() returns their nodes"
    for name, method in vars(_CUDA_GRAPH).items():
        if not name.startswith("_") and not hasattr(npu.NPUGraph, name):
            refuse = _refusal(f"torch.cuda.CUDAGraph.{name}", why)
            setattr(npu.NPUGraph, name, functools.wraps(method)(refuse))
    green = "the npu's cores are not divided among contexts"
    cuda.green_contexts.GreenContext.create = staticmethod(
        _refusal("torch.cuda.green_contexts.GreenContext.create", green)
    )


def _refuse_hooks(graphs: Any) -> None:
    """Refuse what torch 2.14 calls at points of a graph's life, by functions in C."""
    hooks = [n for n in vars(graphs) if re.fullmatch(r"register_graph_\w+_hook", n)]
    if hooks:
        _refuse(
            graphs,
            " ".join([*hooks, "export_dot", "export_graph_data"]),
            "graphs of the npu call no hooks; NPUGraph.debug_dump() writes a graph",
        )


def _refuse_tuning(tunable: Any) -> None:
    switches = ("enable", "tuning_enable", "record_untuned_enable")
    why = "the npu has one implementation of each product, so there is none to choose"
    others = [n for n in tunable.__all__ if n not in (*_TUNABLE, *switches)]
    _refuse(tunable, " ".join(others), why)
    for name in switches:
        refuse = _refusal(f"torch.cuda.tunable.{name}", why)

        def switch(val: bool = True, refuse: Any = refuse) -> None:
            if val:
                refuse()

        setattr(tunable, name, switch)
