"""What else of torch takes "cuda": files, profiles, autocast, process groups."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import serialization
from torch._library import infer_schema
from torch.fx import graph
from torch.profiler import ProfilerActivity

from npu_dispatch import npu
from npu_dispatch.integrations.torch_npu.contrib._cuda_means_npu import (
    AnyDevice,
    MadeOnDevice,
    meant,
    wrap,
)
from npu_dispatch.npu.patches.changes import replace

# Between cpu's 10 and cuda's 20, so that a file's "cuda:0" comes here first.
_BEFORE_CUDA = 15


def fill_in() -> None:
    """Replace all of them."""
    _load_files()
    replace(_with_activities, "torch.profiler.profiler:_KinetoProfile.__init__")
    replace(_with_device, "torch.autograd.profiler:profile.__init__")
    _autocast()
    _streams()
    _signatures()
    replace(_set_default_tensor_type, "torch:set_default_tensor_type")
    if torch.distributed.is_available():
        _process_groups()


def _restore(storage: Any, location: str) -> Any:
    if meant(location) == location:
        return None
    restore: Any = serialization.default_restore_location
    return restore(storage, meant(location))


def _load(
    load: Any, f: Any, map_location: Any = None, *args: Any, **kwargs: Any
) -> Any:
    if isinstance(map_location, dict):
        location: Any = {k: meant(v) for k, v in map_location.items()}
        # What a file that has npu tensors says it was saved from.
        location |= {meant(k): meant(v) for k, v in map_location.items()}
    else:
        location = meant(map_location)
    return load(f, location, *args, **kwargs)


def _load_files() -> None:
    replace(_load, "torch:load")
    register: Any = serialization.register_package
    register(_BEFORE_CUDA, lambda storage: None, _restore)


def _activity(value: Any) -> Any:
    if isinstance(value, dict):
        return {_activity(key): value[key] for key in value}
    return ProfilerActivity.PrivateUse1 if value == ProfilerActivity.CUDA else value


def _with_activities(
    made: Any, profile: Any, *, activities: Any = None, **others: Any
) -> None:
    if activities is not None:
        activities = list(map(_activity, activities))
    made(profile, activities=activities, **others)


def _with_device(
    made: Any, profile: Any, enabled: bool = True, *, use_cuda: bool = False, **how: Any
) -> None:
    device = "cuda" if use_cuda else how.pop("use_device", None)
    made(profile, enabled, use_device=meant(device), **how)


def _autocast() -> None:
    for asked in ("is_autocast_enabled", "get_autocast_dtype"):
        wrap(torch, asked)
    for change in ("set_autocast_enabled", "set_autocast_dtype"):
        wrap(torch, change)
    wrap(torch.amp, "is_autocast_available")
    for name in ("custom_fwd", "custom_bwd"):
        wrap(torch.amp, name)
    for owner in (torch.autocast, torch.amp.GradScaler):
        wrap(owner, "__init__")


def _streams() -> None:
    stream: Any = npu.Stream
    stream.cuda_stream = property(lambda self: self.npu_stream)
    event: Any = npu.Event
    event.cuda_event = property(lambda self: self.npu_event)
    own: Any = torch
    own.Stream, own.Event = MadeOnDevice(torch.Stream), MadeOnDevice(torch.Event)


def _signatures() -> None:
    """Serve readers of signatures, who compare a class with torch.device itself."""
    infer_schema.SUPPORTED_PARAM_TYPES[AnyDevice] = "Device"
    optional: Any = AnyDevice | None
    infer_schema.SUPPORTED_PARAM_TYPES[optional] = "Device?"
    graph._register_custom_builtin("device", "from torch import device", AnyDevice)


def _set_default_tensor_type(own: Any, t: Any) -> None:
    name = t if isinstance(t, str) else f"{t.__module__}.{t.__qualname__}"
    name = meant(name)
    if not name.startswith("torch.npu."):
        torch.set_default_device(None)
        own(t)
        return
    kind = getattr(npu, name.removeprefix("torch.npu."))
    torch.set_default_dtype(kind.dtype)
    torch.set_default_device("npu")


def _backend(backend: Any) -> Any:
    if not isinstance(backend, str):
        return backend
    named = backend.lower().replace("cuda:nccl", "npu:hccl")
    return "hccl" if named == "nccl" else named


def _with_backend(function: Callable[..., Any], position: int) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        values = list(args)
        if len(values) > position:
            values[position] = _backend(values[position])
        if "backend" in kwargs:
            kwargs["backend"] = _backend(kwargs["backend"])
        return function(*values, **kwargs)

    return call


def _process_groups() -> None:
    from torch.distributed import device_mesh, distributed_c10d

    places: tuple[Any, ...] = (torch.distributed, distributed_c10d)
    for name, position in (("init_process_group", 0), ("new_group", 2)):
        call = _with_backend(getattr(torch.distributed, name), position)
        for owner in places:
            setattr(owner, name, call)
    for owner in places:
        owner.is_nccl_available = lambda: True
    wrap(device_mesh, "init_device_mesh")
    wrap(device_mesh.DeviceMesh, "__init__")
    places[0].init_device_mesh = device_mesh.init_device_mesh
