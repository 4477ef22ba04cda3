"""What torch.cuda's modules say where the npu has no function of that name.

Where a program asks what CUDA can do, the answer says what the npu can do, in
CUDA's numbers. What only a GPU can do raises an error of one sentence.
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

from npu_dispatch import npu
from npu_dispatch.config import Config
from npu_dispatch.npu import legacy
from npu_dispatch.npu.graphs import callables
from npu_dispatch.npu.runtime import devices
from npu_dispatch.npu.streams import external
from npu_dispatch.npu.vendor import npu_runtime

# The least capability of a GPU that computes with bfloat16, as the npu does.
_CAPABILITY = (8, 0)
# The oldest version of CUDA that this release of torch is built for.
_CUDA_VERSION = "12.6"
# The oldest version of nccl that reduces bfloat16 and takes means, as hccl does.
_NCCL_VERSION = (2, 10, 3)


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


def _no(*args: Any) -> bool:
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


def _is_one_of_each_device(tensors: Any) -> bool:
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
    """Replace the functions of torch.cuda that torch.npu has not."""
    cuda: Any = torch.cuda
    version: Any = torch.version
    version.cuda = _CUDA_VERSION
    cuda._cudart = _Cudart()
    cuda.get_device_capability = _get_device_capability
    cuda.get_device_properties = _get_device_properties
    cuda.device_memory_used = _device_memory_used
    cuda.get_stream_from_external = _get_stream_from_external
    cuda.is_bf16_supported = _is_bf16_supported
    cuda.current_solver_handle = npu.current_blas_handle
    cuda.is_tf32_supported = _no
    cuda.ExternalStream = cuda.streams.ExternalStream = _ExternalStream
    cuda.graphs.make_graphed_callables = callables.make_graphed_callables
    cuda.amp.common.amp_definitely_not_available = _no
    cuda.memory.caching_allocator_enable = _caching_allocator_enable
    cuda.memory.caching_allocator_disabled = _caching_allocator_disabled
    for name, dtype in (("Float", torch.complex64), ("Double", torch.complex128)):
        storage = legacy._storage(f"Complex{name}", dtype)
        setattr(cuda, f"Complex{name}Storage", storage)
    for name, dtype in legacy._TYPES.items():
        if hasattr(cuda.sparse, f"{name}Tensor"):
            made = _sparse_type(f"{name}Tensor", dtype)
            setattr(cuda.sparse, f"{name}Tensor", made)
    _fill_in_nccl(cuda.nccl)
    _fill_in_tunable(cuda.tunable)
    _refuse_hooks(cuda.graphs)
    no_files = "files on GPUDirect Storage are not supported on the npu"
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


def _fill_in_nccl(nccl: Any) -> None:
    nccl.version = lambda: _NCCL_VERSION
    nccl.is_available = _is_one_of_each_device
    _refuse(
        nccl,
        "all_gather all_reduce broadcast reduce reduce_scatter init_rank unique_id",
        "NCCL is of GPUs; use torch.cuda.comm between devices of one process and "
        "torch.distributed between processes",
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


def _fill_in_tunable(tunable: Any) -> None:
    for name in ("is_enabled", "tuning_is_enabled", "record_untuned_is_enabled"):
        setattr(tunable, name, _no)
    switches = ("enable", "tuning_enable", "record_untuned_enable")
    why = "the npu has one implementation of each product, so there is none to choose"
    others = [n for n in tunable.__all__ if not n.endswith("is_enabled")]
    _refuse(tunable, " ".join(n for n in others if n not in switches), why)
    for name in switches:
        refuse = _refusal(f"torch.cuda.tunable.{name}", why)

        def switch(val: bool = True, refuse: Any = refuse) -> None:
            if val:
                refuse()

        setattr(tunable, name, switch)
