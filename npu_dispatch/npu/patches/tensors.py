"""Tensors that are printed, exchanged, moved, pinned, or sent to other processes."""

from __future__ import annotations

from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing import reductions

from npu_dispatch import _C
from npu_dispatch.npu.patches.changes import change, replaces
from npu_dispatch.npu.runtime.codes import coded
from npu_dispatch.npu.runtime.start import _lazy_init, is_initialized

# Of a larger tensor torch reads some elements only.
_MOST_PRINTED_BYTES = 1 << 20


@replaces("torch._tensor_str:_tensor_str")
def print_one_copy(written: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
    """Let repr() wait once; torch reads each element that it prints by itself."""
    if (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.device.type == "npu"
        and tensor.layout == torch.strided
        and tensor.nbytes <= _MOST_PRINTED_BYTES
    ):
        tensor = tensor.detach().cpu()
    return written(tensor, *args, **kwargs)


@replaces("torch:Tensor.__dlpack_device__")
def name_dlpack_device(named: Any, tensor: torch.Tensor) -> Any:
    """Return (kDLExtDev, index), which torch looks up by the device's first name."""
    if tensor.device.type != "npu":
        return named(tensor)
    from torch.utils.dlpack import DLDeviceType

    return DLDeviceType.kDLExtDev, tensor.device.index


@change
def move_lazy_modules() -> None:
    """Allow Tensor.npu() where torch allows Tensor.cuda(), before shapes are known."""
    from torch.nn import parameter

    lazy: Any = parameter
    move: Any = torch.Tensor
    lazy.UninitializedTensorMixin._allowed_methods.append(move.npu)


@replaces("torch.multiprocessing.reductions:reduce_tensor")
def send_tensor(reduce: Any, tensor: torch.Tensor) -> Any:
    """Send the way to a tensor's memory, also of the parts of a sparse one."""
    strided = tensor.layout == torch.strided and not tensor.is_nested
    if tensor.device.type != "npu" or not strided:
        return reduce(tensor)
    from npu_dispatch.npu.memory import shared

    return shared.reduce_tensor(tensor)


@replaces("torch.multiprocessing.reductions:reduce_storage")
def refuse_to_send_storage(reduce: Any, storage: torch.UntypedStorage) -> Any:
    """Refuse storages of the device."""
    if storage.device.type != "npu":
        return reduce(storage)
    raise coded(
        RuntimeError, "Cannot pickle npu storage; try pickling an npu tensor instead"
    )


@change
def send_to_other_processes() -> None:
    """Let multiprocessing call the two functions above."""
    module: Any = reductions
    ForkingPickler.register(torch.Tensor, module.reduce_tensor)
    ForkingPickler.register(torch.nn.Parameter, module.reduce_tensor)
    ForkingPickler.register(torch.UntypedStorage, module.reduce_storage)


@replaces("torch:UntypedStorage.is_shared")
def is_shared(shared_on_host: Any, storage: torch.UntypedStorage) -> Any:
    """Return whether other processes can see it; npu storages they always can."""
    return storage.device.type == "npu" or shared_on_host(storage)


# torch.distributed calls these two for state dicts that are both pinned and shared.
@replaces("torch.cuda._pin_memory_utils:pin_memory")
def pin_memory(pin: Any, data_ptr: int, size: int) -> None:
    """Register memory with the npu where there is no CUDA device."""
    if torch.cuda.is_available():
        pin(data_ptr, size)
        return
    _lazy_init()
    try:
        _C.register_pinned(data_ptr, size)
    except RuntimeError as error:
        raise RuntimeError(
            f"npu: {size} bytes of shared host memory at {data_ptr:#x} cannot be "
            "pinned: a part of them is pinned already. Pin each storage once, or "
            "use pin_memory=False"
        ) from error


@replaces("torch.cuda._pin_memory_utils:unpin_memory")
def unpin_memory(unpin: Any, data_ptr: int) -> None:
    """Take the registration back."""
    if torch.cuda.is_available():
        unpin(data_ptr)
        return
    # The memory goes away now, and queued copies may still use it.
    for device in range(_C.device_count() if is_initialized() else 0):
        _C.synchronize(device)
    _C.unregister_pinned(data_ptr)
