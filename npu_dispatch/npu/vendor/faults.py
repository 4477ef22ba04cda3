"""What a cluster's fault handler asks of a device, which any thread may call."""

from __future__ import annotations

import threading
import warnings
from typing import ClassVar

import torch

from npu_dispatch import _C
from npu_dispatch.config import Config
from npu_dispatch.npu.runtime.codes import expect
from npu_dispatch.npu.runtime.devices import _checked
from npu_dispatch.npu.runtime.start import _lazy_init


class _Injected:
    """Faults that tests have asked for; a virtual device has no others."""

    lock = threading.Lock()
    address: ClassVar[dict[int, int]] = {}
    stress_result = 0


def _device(device_id: int) -> int:
    expect(device_id, int, "device_id")
    _lazy_init()
    return _checked(device_id, kind=RuntimeError)


def stop_device(device_id: int) -> int:
    """Stop a device: return 0, or 1 if that failed.

    Work that has not begun is dropped on every stream of the device, and threads that
    wait for room or for results are woken. These, and later launches, raise a
    RuntimeError that says FORCE STOP, until restart_device(). A kernel that has begun
    runs to its end; waits for external events end at once.
    """
    _C.stop_device(_device(device_id))
    return 0


def restart_device(
    device_id: int,
    rebuild_all_resources: bool = False,
    disable_tensor_unsafe_check: bool = False,
) -> None:
    """Let a stopped device take work again, after what is left in its queues.

    With `rebuild_all_resources` the cached memory is given back, too. Tensors that
    dropped work was to write have undefined contents, as after any failure. They are
    not marked, so the last argument changes nothing.
    """
    index = _device(device_id)
    _C.restart_device(index)
    if rebuild_all_resources:
        _C.empty_cache()


def _inject_memory_fault(device_id: int, address: int | None) -> None:
    """Make check_uce_in_memory() find an uncorrectable error there, or nowhere."""
    with _Injected.lock:
        if address is None:
            _Injected.address.pop(device_id, None)
        else:
            _Injected.address[device_id] = address


def check_uce_in_memory(device_id: int) -> int:
    """Return where an uncorrectable memory error is.

    0: there is none; 1: outside the allocator's memory; 2: in memory that was only
    cached; 3: in a tensor's memory. To tell 2 from 3, this gives back cached memory.
    """
    index = _device(device_id)
    address = _Injected.address.get(index)
    if address is None:
        return 0
    before = _in_segments(index, address)
    _C.empty_cache()
    if not before:
        return 1
    return 3 if _in_segments(index, address, active=True) else 2


def _in_segments(index: int, address: int, active: bool = False) -> bool:
    for segment in _C.memory_snapshot(index):
        for block in segment["blocks"]:
            inside = 0 <= address - block["address"] < block["size"]
            if inside and (not active or block["state"] != "inactive"):
                return True
    return False


def _inject_stress_result(code: int) -> None:
    """Make stress_detect() return `code` after its check."""
    _Injected.stress_result = code


def stress_detect(detect_type: str = "aic") -> int:
    """Check a device's arithmetic; return 0 passed, 1 could not run, 2 fault.

    "aic" multiplies matrices of whole numbers and compares with the exact result.
    "hccs" checks the links and needs torch.distributed and its variables. Without
    these, or for an unknown type, there is a warning and the result is 1. Waits for
    all streams.
    """
    _lazy_init()
    if detect_type not in ("aic", "hccs"):
        warnings.warn(f"unknown detect_type {detect_type!r}: aic or hccs", stacklevel=2)
        return 1
    if detect_type == "hccs" and not (
        torch.distributed.is_available()
        and torch.distributed.is_initialized()
        and Config.read().is_rank
    ):
        warnings.warn(
            "stress_detect('hccs') needs torch.distributed, RANK, LOCAL_WORLD_SIZE "
            "and WORLD_SIZE",
            stacklevel=2,
        )
        return 1
    _C.synchronize()
    n = 256
    numbers = torch.arange(n * n, dtype=torch.float64).reshape(n, n).remainder(251)
    product = (numbers.to("npu") @ numbers.to("npu")).cpu()
    exact = numbers.long() @ numbers.long()
    return _Injected.stress_result or (0 if torch.equal(product.long(), exact) else 2)
