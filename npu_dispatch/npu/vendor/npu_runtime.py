"""The runtime's own interface, as torch.cuda.cudart() is for CUDA."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable

from npu_dispatch import _C
from npu_dispatch.npu.memory import mem_get_info
from npu_dispatch.npu.runtime.devices import Device, resolve
from npu_dispatch.npu.runtime.start import _lazy_init

_INVALID_PARAM = 100000  # ACL_ERROR_INVALID_PARAM

_log = logging.getLogger(__name__)


def _refused(why: str) -> int:
    _log.error("npurt: %s", why)
    return _INVALID_PARAM


def _code(name: str, call: Callable[..., object], *args: int) -> int:
    """Return 0, or the code of an error where the call raises."""
    try:
        call(*args)
    except RuntimeError as error:
        return _refused(f"{name}: {error}")
    return 0


class _Runtime:
    """The runtime's own interface, as torch.cuda.cudart() is for CUDA.

    Functions that torch_npu has too return 0 or, as its runtime does, the code of an
    error, and then log what went wrong. Sizes are in bytes.
    """

    def npuStreamCreate(self, ptr: int) -> int:  # noqa: N802
        """Make a stream of the current device, for ExternalStream.

        `ptr` is where the stream's pointer is written: ctypes.addressof() of a
        ctypes.c_void_p. At most 32 such streams exist per device.
        """
        if not ptr:
            return _refused("npuStreamCreate: ptr must not be null")
        index = resolve(None)
        try:
            made = (index << 32) | _C.take_owned_stream(index)
        except RuntimeError as error:
            return _refused(f"npuStreamCreate: {error}")
        ctypes.c_uint64.from_address(ptr).value = made
        return 0

    def npuStreamDestroy(self, ptr: int) -> int:  # noqa: N802
        """Wait for the stream's work, then give the stream back."""
        if not ptr:
            return _refused("npuStreamDestroy: ptr must not be null")
        where = ptr >> 32, ptr & 0xFFFFFFFF
        return _code("npuStreamDestroy", _C.give_owned_stream, *where)

    def npuMemGetInfo(self, device: Device = None) -> tuple[int, int]:  # noqa: N802
        """Return the (free, total) bytes of the current device."""
        return mem_get_info(device)

    def npuHostRegister(  # noqa: N802
        self, ptr: int, size: int, flags: int = 0
    ) -> int:
        """Pin `size` bytes of the host at `ptr`, so that copies of them are queued.

        The memory stays the caller's, who keeps it until queued copies are done.
        `flags` has no effect. It is an error if a part of the memory is pinned
        already.
        """
        return _code("npuHostRegister", _C.register_pinned, ptr, size)

    def npuHostUnregister(self, ptr: int) -> int:  # noqa: N802
        """Take npuHostRegister(ptr, ...) back."""
        return _code("npuHostUnregister", _C.unregister_pinned, ptr)

    def npuDeviceSynchronize(self) -> int:  # noqa: N802
        """Wait for the current device."""
        _C.synchronize()
        return 0


_runtime = _Runtime()


def npurt() -> _Runtime:
    """Return the runtime's interface, always the same object. Starts the runtime."""
    _lazy_init()
    return _runtime
