"""Autocast, backward, losses, optimizers, profiles and nn.DataParallel.

torch's autocast functions that name no device mean CUDA, and so does a GradScaler.
nn.MultiheadAttention and nn.TransformerEncoder ask one of the functions whether to take
a fast path that does not cast. Where there is no CUDA device, all of them mean npu.
CUDA's own state stays as it is: TorchScript inserts casts by it, which are for tensors
of CUDA.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from npu_dispatch import _C
from npu_dispatch.npu.patches.changes import change, replaces
from npu_dispatch.npu.runtime import devices


@functools.cache
def _count_cuda() -> int:
    return torch.cuda.device_count()


def _default() -> str:
    # After npu_dispatch.redirect_cuda(), torch.cuda is npu.
    if torch.cuda.device_count is devices.device_count:
        return "npu"
    return "cuda" if _count_cuda() else "npu"


def _name_the_device(name: str, by: str, values: int) -> None:
    """Let a function that got no device call `by` with one.

    values: how many arguments it has beside the device.
    """
    from torch.jit import _builtins

    own, with_device = getattr(torch, name), getattr(torch, by)

    @functools.wraps(own)
    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) + len(kwargs) > values:
            return own(*args, **kwargs)
        return with_device(_default(), *args, **kwargs)

    for owner in (torch, torch._C):
        setattr(owner, name, call)
    # TorchScript knows functions by their ids.
    known: Any = _builtins
    if operator := known._find_builtin(own):
        known._register_builtin(call, operator)
    # Dynamo, where it is imported already, knows the functions whose values it folds.
    if dynamo := sys.modules.get("torch._dynamo.variables.torch"):
        folded: dict[Any, None] = dynamo.constant_fold_functions
        if own in folded:
            folded[call] = None


@change
def autocast_without_device() -> None:
    """Let functions that are given no device mean npu."""
    _name_the_device("is_autocast_enabled", "is_autocast_enabled", 0)
    _name_the_device("set_autocast_enabled", "set_autocast_enabled", 1)
    _name_the_device("get_autocast_gpu_dtype", "get_autocast_dtype", 0)
    _name_the_device("set_autocast_gpu_dtype", "set_autocast_dtype", 1)


@replaces("torch.amp:GradScaler.__init__")
def scaler_without_device(init: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    """Let a scaler that is given no device scale gradients of the npu.

    torch makes one for CUDA, and switches it off where there is no CUDA device.
    """
    if not args:
        kwargs.setdefault("device", _default())
    init(self, *args, **kwargs)


@replaces(
    "torch.nn.parallel:parallel_apply", "torch.nn.parallel.data_parallel:parallel_apply"
)
def autocast_replicas(
    apply: Any, modules: Sequence[Any], *args: Any, **kwargs: Any
) -> Any:
    """Tell DataParallel's threads the dtype; torch tells only that autocast is on."""
    if torch.is_autocast_enabled("npu"):
        dtype = torch.get_autocast_dtype("npu")
        cached = torch.is_autocast_cache_enabled()
        # Each thread enters one of its own, as they keep what they replace.
        modules = [
            torch.autocast("npu", dtype, cache_enabled=cached)(module.__call__)
            for module in modules
        ]
    return apply(modules, *args, **kwargs)


_PARALLEL = (
    "_broadcast",
    "_broadcast_out",
    "_broadcast_coalesced",
    "_scatter",
    "_scatter_out",
    "_gather",
    "_gather_out",
)


def _parallel(name: str, original: Any, count: Any) -> Any:
    def call(tensors: Any, *args: Any) -> Any:
        from npu_dispatch.npu import comm

        many = [tensors] if isinstance(tensors, torch.Tensor) else tensors
        on = next((tensor.device.type for tensor in many), None)
        # What is on the host is meant for the devices that there are: a build for
        # CUDA may run where no such device is.
        if original is not None and (on == "cuda" or (on != "npu" and count() > 0)):
            return original(tensors, *args)
        return getattr(comm, name)(tensors, *args)

    return call


@change
def serve_data_parallel() -> None:
    """Give torch.nn.parallel what it looks for in torch._C, as in CUDA's builds.

    nn.DataParallel may call it before anything of ours is imported. torch.npu.comm,
    which does the work, is imported by the first call.
    """
    count = getattr(torch._C, "_cuda_getDeviceCount", int)
    for name in _PARALLEL:
        original = getattr(torch._C, name, None)
        setattr(torch._C, name, _parallel(name, original, count))


@replaces(
    "torch.autograd.graph:_engine_run_backward", "torch.autograd:_engine_run_backward"
)
def run_backward(run: Any, *args: Any, **kwargs: Any) -> Any:
    """Free the gradients of a backward that fails."""
    try:
        return run(*args, **kwargs)
    except BaseException:
        _C.drop_unfinished_backward()
        raise


@replaces("torch.autograd.grad_mode:set_multithreading_enabled.__init__")
def choose_threads(choose: Any, self: Any, mode: bool) -> None:
    """Let a choice of threads stand; the thread's first call would choose otherwise."""
    _C.set_up_thread()
    choose(self, mode)


@replaces(
    "torch.nn.modules.linear_cross_entropy_options:LinearCrossEntropyOptions._adjust"
)
def sum_as_on_cpu(
    adjust: Any, self: Any, *args: Any, device: Any = None, **others: Any
) -> Any:
    """Let "auto" of the chunked linear_cross_entropy mean what it means on cpu.

    torch chooses the type of its sums by the device's name, and knows only its own
    devices, so half types would be summed in half precision here.
    """
    if device is not None and device.type == "npu":
        device = torch.device("cpu")
    return adjust(self, *args, device=device, **others)


@change
def count_optimizer_steps() -> None:
    """Count every step of torch.optim's optimizers, but not those of a replay.

    A reader can then tell how fast a process trains.
    """
    register_optimizer_step_post_hook(_stepped)


# Where step() is compiled, torch breaks the graph before the hooks.
def _stepped(*_: Any) -> None:
    _C.count_optimizer_step()


@replaces(
    "torch.autograd:_enable_profiler",
    "torch.autograd:_enable_profiler_legacy",
    "torch.autograd.profiler:_enable_profiler",
)
def report_memory(start: Any, *args: Any, **kwargs: Any) -> Any:
    """Report device memory to torch's profiles, from the first profile on.

    To ask at each allocation whether this thread is profiled would slow down programs
    that never are, and torch has no other sign that a profile begins.
    """
    _C.report_memory()
    return start(*args, **kwargs)
