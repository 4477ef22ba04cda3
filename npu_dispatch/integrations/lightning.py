"""The device as Lightning's accelerator "npu", for its Trainer and for Fabric.

Lightning asks no package for accelerators. So this registers one when Lightning is
imported, under both of its names.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from npu_dispatch import import_alias, npu

_PACKAGES = {
    "lightning.pytorch": "trainer.connectors.accelerator_connector",
    "lightning.fabric": "connector",
    "pytorch_lightning": "trainer.connectors.accelerator_connector",
    "lightning_fabric": "connector",
}
_DEVICE_IDS = ("determine_ddp_device_ids", "_determine_ddp_device_ids")
_CONNECTORS = ("_AcceleratorConnector", "_Connector")


def register() -> None:
    """Register the accelerator with Lightning as soon as that is imported."""
    for package, connector in _PACKAGES.items():
        _after(f"{package}.accelerators", _add_accelerator)
        _after(f"{package}.strategies.ddp", _replicate)
        _after(f"{package}.{connector}", _connect)


def _after(name: str, change: Callable[[ModuleType], None]) -> None:
    def changed() -> None:
        try:
            change(sys.modules[name])
        except Exception as error:
            # Nobody's import of Lightning fails because of us.
            logging.getLogger(__name__).warning(
                "Lightning does not know the device 'npu': %s", error
            )

    import_alias.after_import(name, changed)


def _add_accelerator(accelerators: ModuleType) -> None:
    registry = getattr(accelerators, "AcceleratorRegistry", None)
    if registry is None:  # Fabric's
        registry = accelerators.ACCELERATOR_REGISTRY
    if "npu" in registry:
        return  # Lightning has its own, or somebody else's is registered
    made = _accelerator(accelerators.Accelerator)
    registry.register("npu", made, description="npu, of npu_dispatch")

    refuses = accelerators.CUDAAccelerator.setup_device

    @functools.wraps(refuses)
    def set_up(self: Any, device: torch.device) -> None:
        # "cuda" means npu for this program (npu_dispatch.redirect_cuda).
        if device.type == "npu":
            made().setup_device(device)
        else:
            refuses(self, device)

    accelerators.CUDAAccelerator.setup_device = set_up


def _accelerator(base: Any) -> Any:
    """Return a subclass of Lightning's or Fabric's accelerator."""

    class NPUAccelerator(base):  # type: ignore[misc]
        """Devices of type npu. `devices` counts or lists them, as for "cuda"."""

        def setup_device(self, device: torch.device) -> None:
            if device.type != "npu":
                raise ValueError(f"NPUAccelerator takes npu devices, not {device}")
            npu.set_device(device)

        def teardown(self) -> None:
            npu.empty_cache()

        def get_device_stats(self, device: torch.device | str | int) -> dict[str, Any]:
            return npu.memory_stats(device)

        @staticmethod
        def parse_devices(devices: int | str | list[int]) -> list[int]:
            return _indices(devices)

        @staticmethod
        def get_parallel_devices(devices: list[int]) -> list[torch.device]:
            return [torch.device("npu", index) for index in devices]

        @staticmethod
        def auto_device_count() -> int:
            return npu.device_count()

        @staticmethod
        def is_available() -> bool:
            return npu.is_available()

        @staticmethod
        def name() -> str:
            return "npu"

    return NPUAccelerator


def _replicate(ddp: ModuleType) -> None:
    """Let DDP's replica be made in the npu's current stream."""
    strategy = ddp.DDPStrategy
    (name,) = (name for name in _DEVICE_IDS if hasattr(strategy, name))
    ids = getattr(strategy, name)

    @functools.wraps(ids)
    def device_ids(self: Any) -> list[int] | None:
        # Lightning takes a stream of torch.cuda wherever there are ids.
        return None if self.root_device.type == "npu" else ids(self)

    setattr(strategy, name, device_ids)


def _indices(devices: int | str | list[int]) -> list[int]:
    """Return what devices=2, -1, "2", "0,1" or [1] asks for."""
    count = npu.device_count()
    if isinstance(devices, str):
        named = [int(part) for part in devices.split(",") if part.strip()]
        devices = named[0] if named and "," not in devices else named
    if isinstance(devices, int):
        devices = list(range(count if devices == -1 else devices))
    wrong = [index for index in devices if not 0 <= index < count]
    if wrong or not devices or len(set(devices)) < len(devices):
        raise ValueError(
            f"devices={devices}: there are {count} npu devices, 0 to {count - 1}; ask "
            "for a number of them, or list each once (NPU_DISPATCH_DEVICES sets how "
            "many there are)"
        )
    return list(devices)


def _connect(connector: ModuleType) -> None:
    """Let the Trainer's or Fabric's choices reach the accelerator "npu"."""
    (chosen,) = (
        getattr(connector, name) for name in _CONNECTORS if hasattr(connector, name)
    )
    auto, strategy = chosen._choose_auto_accelerator, chosen._choose_strategy
    precision = chosen._check_and_init_precision

    def choose_auto() -> str:
        found: str = auto()
        return "npu" if found == "cpu" and npu.is_available() else found

    @functools.wraps(strategy)
    def choose_strategy(self: Any) -> Any:
        made = strategy(self)
        # Lightning takes the cpu for a single device of a type that it does not know.
        if self.accelerator.name() == "npu" and not isinstance(made, str):
            return connector.SingleDeviceStrategy(device=self._parallel_devices[0])
        return made

    @functools.wraps(precision)
    def init_precision(self: Any) -> Any:
        made = precision(self)
        mixed = connector.MixedPrecision
        # Lightning autocasts for cuda there.
        if self.accelerator.name() == "npu" and type(made) is mixed:
            return mixed(made.precision, "npu")
        return made

    chosen._choose_auto_accelerator = staticmethod(choose_auto)
    chosen._choose_strategy = choose_strategy
    chosen._check_and_init_precision = init_precision
