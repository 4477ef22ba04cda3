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
    is_bf16_supported = staticmethod(npu.is_bf16_supported)

    @staticmethod
    def get_compute_capability(device: Any = None) -> str:
        return ""


class NpuOpOverrides(DeviceOpOverrides):
    """The line of Python that Inductor writes about a device of any type.

    It writes guards and raw streams only for the devices that it names.
    """

    def synchronize(self) -> str:
        return "torch.npu.synchronize()"


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
