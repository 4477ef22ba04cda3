"""The device as Dynamo and Inductor know devices."""

from __future__ import annotations

from typing import Any

import torch
import torch._inductor.config as inductor_config
from torch._dynamo.device_interface import (
    DeviceInterface,
    caching_worker_current_devices,
    caching_worker_device_properties,
    register_interface_for_device,
)
from torch.utils._triton import has_triton

from npu_dispatch import npu

__all__ = ["NpuInterface", "get_raw_stream", "register"]


def get_raw_stream(device_idx: int) -> int:
    """Return the number of the calling thread's stream on a device."""
    return npu.current_stream(device_idx).npu_stream


def _index_of(device: Any) -> int:
    if device is None:
        return NpuInterface.Worker.current_device()
    return device if isinstance(device, int) else torch.device(device).index or 0


class NpuInterface(DeviceInterface):
    device = npu.device
    Event = npu.Event
    Stream = npu.Stream

    class Worker:
        """What processes that compile ask about the device; set before they start."""

        @staticmethod
        def set_device(device: int) -> None:
            caching_worker_current_devices["npu"] = device

        @staticmethod
        def current_device() -> int:
            if "npu" in caching_worker_current_devices:
                return caching_worker_current_devices["npu"]
            return npu.current_device()

        @staticmethod
        def get_device_properties(device: Any = None) -> Any:
            if "npu" not in caching_worker_device_properties:
                caching_worker_device_properties["npu"] = [
                    npu.get_device_properties(i) for i in range(npu.device_count())
                ]
            return caching_worker_device_properties["npu"][_index_of(device)]

    current_device = staticmethod(npu.current_device)
    set_device = staticmethod(npu.set_device)
    device_count = staticmethod(npu.device_count)
    is_available = staticmethod(npu.is_available)
    stream = staticmethod(npu.stream)
    current_stream = staticmethod(npu.current_stream)
    set_stream = staticmethod(npu.set_stream)
    synchronize = staticmethod(npu.synchronize)
    exchange_device = staticmethod(npu._exchange_device)
    maybe_exchange_device = staticmethod(npu._maybe_exchange_device)
    memory_allocated = staticmethod(npu.memory_allocated)
    get_raw_stream = staticmethod(get_raw_stream)

    @staticmethod
    def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
        stream = torch.Stream(
            stream_id=stream_id, device_index=device_index, device_type=device_type
        )
        npu.set_stream(stream)

    @staticmethod
    def is_bf16_supported(including_emulation: bool = False) -> bool:
        return npu.is_bf16_supported()

    @staticmethod
    def get_compute_capability(device: Any = None) -> str:
        return ""


def register() -> None:
    """Make Dynamo find it under "npu" and the name of each device."""
    register_interface_for_device("npu", NpuInterface)
    for index in range(npu.device_count()):
        register_interface_for_device(f"npu:{index}", NpuInterface)
    if torch.cuda.is_available is npu.is_available:
        # torch.cuda is redirected to the npu. A torch that was built for GPUs
        # brings Triton, which would look for their driver.
        inductor_config.triton_disable_device_detection = True
        has_triton.cache_clear()
