"""Which devices there are, and which one a thread or an argument means."""

from __future__ import annotations

import contextlib
import os
import uuid
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import torch

from npu_dispatch import _C
from npu_dispatch.config import Config
from npu_dispatch.npu.runtime.codes import coded
from npu_dispatch.npu.runtime.start import _lazy_init


class _DeviceContext(Protocol):
    """A torch.npu.device."""

    @property
    def idx(self) -> int: ...


# None is the current device; a string is "npu" or "npu:0".
Device: TypeAlias = int | str | torch.device | _DeviceContext | None


def is_npu(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is on an npu, as Tensor.is_npu, but known to mypy."""
    return tensor.device.type == "npu"


def _get_device_index(
    device: Device, optional: bool = False, allow_cpu: bool = False
) -> int:
    """Return the index, unchecked; -1 for the CPU where that is allowed."""
    if device is None:
        if optional:
            return _C.current_device()
        raise coded(
            ValueError, "Expected a device with a specified index, but got: None"
        )
    if isinstance(device, int):
        return int(device)
    index: object = getattr(device, "idx", None)  # of a torch.npu.device
    if isinstance(index, int):
        return int(index)
    if isinstance(device, str):
        device = torch.device(device)
    if not isinstance(device, torch.device):
        raise coded(
            ValueError, f"Expected a torch.device or an index, but got: {device!r}"
        )
    if device.type == "cpu" and allow_cpu:
        return -1
    if device.type != "npu":
        raise coded(ValueError, f"Expected an npu device, but got: {device}")
    number: int | None = device.index
    if number is not None:
        return number
    if optional:
        return _C.current_device()
    raise coded(
        ValueError, f"Expected a device with a specified index, but got: {device}"
    )


def _checked(
    index: int,
    what: str = "device id",
    kind: type[AssertionError | RuntimeError] = AssertionError,
) -> int:
    if not 0 <= index < _C.device_count():
        count = _C.device_count()
        raise coded(kind, f"Invalid {what} {index}: there are {count} devices")
    return index


def resolve(device: Device) -> int:
    """Return a checked device index; None and negative mean the current one."""
    _lazy_init()
    index = _get_device_index(device, optional=True)
    if index < 0:
        return _C.current_device()
    return index if index < _C.device_count() else _checked(index, kind=RuntimeError)


def device_count() -> int:
    """Return the number of visible devices, without starting the runtime."""
    return _C.device_count()


def is_available() -> bool:
    """Return whether there is a device. Never raises, and starts nothing.

    If the driver (`NPU_DRIVER`) cannot be used, a UserWarning says why.
    """
    try:
        return _C.device_count() > 0
    except RuntimeError as error:
        warnings.warn(str(error), stacklevel=2)
        return False


def current_device() -> int:
    """Return the index of the calling thread's device."""
    _lazy_init()
    return _C.current_device()


def set_device(device: Device) -> None:
    """Choose the calling thread's device. A negative index does nothing."""
    index = _get_device_index(device, optional=True)
    if index >= 0:
        _lazy_init()
        _C.set_device(index)


def _exchange_device(device: int) -> int:
    if device < 0:
        return -1
    return _C.exchange_device(device)


def _maybe_exchange_device(device: int) -> int:
    return _exchange_device(device)  # a function of its own, as Dynamo requires


class device:
    """A context on another device; None and negative indices change nothing."""

    def __init__(self, device: Device) -> None:
        self.idx = _get_device_index(device, optional=True)
        self.prev_idx = -1
        self._entries: list[int] = []  # the previous devices of contexts not left yet

    def __enter__(self) -> None:
        if self.idx >= 0:
            _lazy_init()
        self.prev_idx = _exchange_device(self.idx)
        self._entries.append(self.prev_idx)

    def __exit__(self, *exc: object) -> None:
        _exchange_device(self._entries.pop() if self._entries else self.prev_idx)


device_ctx_manager = device  # torch_npu's name for it


class device_of(device):
    """A context on the device of a tensor or storage, if that is an npu."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if obj.is_npu else -1)


_ran = False  # whether synchronize() has run; it saves a tenth of a microsecond


def synchronize(device: Device = None) -> None:
    """Wait for all work on all streams of the device; raise a failed stream's error.

    ACL_DEVICE_SYNC_TIMEOUT, in seconds, limits the wait, which then raises
    RuntimeError.
    """
    global _ran
    if device is None and _ran:
        _C.synchronize()
        return
    _lazy_init()
    _ran = True
    _C.synchronize(_get_device_index(device, optional=True))


@dataclass(frozen=True, slots=True)
class DeviceProperties:
    name: str
    total_memory: int
    cube_core_num: int
    vector_core_num: int
    L2_cache_size: int
    uuid: uuid.UUID
    major: None = None
    minor: None = None
    is_multi_gpu_board: None = None
    is_integrated: None = None
    max_threads_per_multi_processor: None = None
    warp_size: None = None
    regs_per_multiprocessor: None = None
    gcnArchName: None = None

    @property
    def multi_processor_count(self) -> int:
        return self.vector_core_num


def checked_index(device: Device) -> int:
    """Start the runtime and return a device's index; a bad one: AssertionError."""
    _lazy_init()
    return _checked(_get_device_index(device, optional=True))


def get_device_name(device_name: Device = None) -> str:
    """Return the chip's name, the same for every index."""
    _checked(_get_device_index(device_name, optional=True))
    return Config.read().device_name


def _l2_bytes() -> int:
    """Return the size of a core's second-level cache; 0 where it is not known."""
    try:
        text = Path("/sys/devices/system/cpu/cpu0/cache/index2/size").read_text()
        return int(text.strip().removesuffix("K")) * 1024
    except (OSError, ValueError):
        return 0


def get_device_properties(device_name: Device = None) -> DeviceProperties:
    """Return the facts about a device; a bad index raises AssertionError."""
    index = checked_index(device_name)
    cores = os.cpu_count() or 1
    return DeviceProperties(
        name=get_device_name(index),
        total_memory=_C.mem_get_info(index)[1],
        cube_core_num=cores,
        vector_core_num=cores,
        L2_cache_size=_l2_bytes(),
        uuid=uuid.uuid5(uuid.NAMESPACE_OID, f"npu_dispatch/{index}"),
    )


def get_device_capability(device: Device = None) -> tuple[int, int] | None:
    """Return TORCH_NPU_DEVICE_CAPABILITY as numbers; without it, None and a warning."""
    text = Config.read().device_capability or ""
    major, dot, minor = text.partition(".")
    if dot and text.isascii() and major.isdecimal() and minor.isdecimal():
        return int(major), int(minor)
    warnings.warn(
        "an npu has no compute capability; set TORCH_NPU_DEVICE_CAPABILITY to "
        "'<major>.<minor>' if a script needs one",
        stacklevel=2,
    )
    return None


def can_device_access_peer(device_id: int, peer_device_id: int) -> bool:
    """Return whether one device reads another's memory, which it always can here."""
    _lazy_init()
    _checked(device_id)
    _checked(peer_device_id, "peer device id")
    return device_id != peer_device_id


def set_launch_blocking(enabled: bool) -> None:
    """Make every launch of the process wait for its task, or no longer.

    NPU_LAUNCH_BLOCKING=1 does so from the start.
    """
    _C.set_launch_blocking(bool(enabled))


def set_thread_launch_blocking(enabled: bool) -> None:
    """Make the calling thread's launches wait for their tasks, or no longer."""
    _C.set_thread_launch_blocking(bool(enabled))


@contextlib.contextmanager
def launch_blocking() -> Iterator[None]:
    """Make the calling thread's launches wait for their tasks.

    An operator that fails on the device then raises at its own call.
    """
    before = _C.set_thread_launch_blocking(True)
    try:
        yield
    finally:
        _C.set_thread_launch_blocking(before)


def is_bf16_supported(including_emulation: bool = False) -> bool:
    """Return whether operators take bfloat16 tensors, which is always true."""
    return True


def current_blas_handle() -> None:
    """Warn that an npu has no BLAS handle."""
    warnings.warn("an npu has no BLAS handle", stacklevel=2)


def get_arch_list() -> list[str]:
    """Return the chips that kernels are built for: the virtual one, if there is one."""
    return ["virtual"] if _C.device_count() else []


def get_gencode_flags() -> str:
    """Return the compiler's architecture flags: "", as kernels are the host's."""
    return ""
