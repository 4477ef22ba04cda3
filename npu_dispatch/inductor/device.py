"""The device as Dynamo and Inductor know devices."""

from __future__ import annotations

from typing import Any

import torch
import torch._inductor.config as inductor_config
from torch._dynamo.device_interface import (
    DeviceInterface,
    register_interface_for_device,
)
from torch._inductor.codegen import cpp_utils
from torch._inductor.codegen.common import (
    DeviceOpOverrides,
    register_device_op_overrides,
)
from torch._inductor.scheduler import BaseSchedulerNode
from torch.utils._triton import has_triton

from npu_dispatch import npu


def get_raw_stream(device_idx: int) -> int:
    """Return the number of the calling thread's stream on a device."""
    return npu.current_stream(device_idx).npu_stream


class NpuInterface(DeviceInterface):
    device = npu.device
    Event = npu.Event
    Stream = npu.Stream

    class Worker:
        """What Inductor asks before it compiles."""

        current_device = staticmethod(npu.current_device)
        get_device_properties = staticmethod(npu.get_device_properties)

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


class NpuOpOverrides(DeviceOpOverrides):
    """The lines of Python that Inductor writes about a device."""

    def import_get_raw_stream_as(self, name: str) -> str:
        return f"from npu_dispatch.inductor.device import get_raw_stream as {name}"

    def set_device(self, device_idx: int) -> str:
        return f"torch.npu.set_device({device_idx})"

    def synchronize(self) -> str:
        return "torch.npu.synchronize()"

    def device_guard(self, device_idx: int) -> str:
        return f"torch.npu.device({device_idx})"

    def current_stream(self) -> str:
        return "torch.npu.current_stream()"

    def cpp_kernel_type(self) -> str:
        return "void*"


def _is_cpu(self: BaseSchedulerNode) -> bool:
    device = self.get_device()
    return device is not None and device.type in ("cpu", "npu")


def register() -> None:
    """Tell Dynamo, by "npu" and the name of each device, and Inductor."""
    register_interface_for_device("npu", NpuInterface)
    for index in range(npu.device_count()):
        register_interface_for_device(f"npu:{index}", NpuInterface)
    if torch.cuda.is_available is npu.is_available:
        # torch.cuda is redirected to the npu. A torch that was built for GPUs
        # brings Triton, which would look for their driver.
        inductor_config.triton_disable_device_detection = True
        has_triton.cache_clear()
    register_device_op_overrides("npu", NpuOpOverrides())
    cpp_utils.DEVICE_TO_ATEN["npu"] = "at::kPrivateUse1"
    cpp_utils.DEVICE_TO_INT["npu"] = 20
    # These passes of the scheduler, such as loop reordering, rewrite groups into a form
    # that only Triton's code generation reads. They ask nothing else about a node.
    BaseSchedulerNode.is_cpu = _is_cpu  # type: ignore[method-assign]
