"""Seeds and states of the devices' generators.

A generator exists without the runtime, so seeding does not start that, and the first
random operator sees a seed that was set early. Asking for a state starts the runtime.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from npu_dispatch import _C
from npu_dispatch.import_alias import refused_names
from npu_dispatch.npu.runtime import own_names
from npu_dispatch.npu.runtime.codes import coded
from npu_dispatch.npu.runtime.devices import Device, _get_device_index
from npu_dispatch.npu.runtime.start import _lazy_init

_refuse = refused_names("torch.npu.random")


def _generator(device: Device) -> torch.Generator:
    index = _get_device_index(device, optional=True)
    if index < 0:  # an old spelling of the current device
        index = _C.current_device()
    if index >= _C.device_count():
        raise coded(IndexError, f"npu:{index} of {_C.device_count()} devices")
    return _C.default_generator(index)


def _generators() -> list[torch.Generator]:
    return [_C.default_generator(index) for index in range(_C.device_count())]


def __getattr__(name: str) -> Any:
    if name == "default_generators":
        return tuple(_generators())
    return _refuse(name)


def get_rng_state(device: Device = "npu") -> torch.Tensor:
    """Return the 16 bytes of a device's generator."""
    generator = _generator(device)
    _lazy_init()
    return generator.get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """Return the state of every device's generator."""
    return [get_rng_state(index) for index in range(_C.device_count())]


def set_rng_state(new_state: torch.Tensor, device: Device = "npu") -> None:
    """Set a device's generator: 16 bytes, or 8 for a seed with offset 0."""
    _generator(device).set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Set the generators of the devices, in order."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seed the current device with 64 bits. Does nothing where there is no device.

    The first launch of a seed below 2^32 draws what cpu draws for that seed. For each
    other, Philox 4x32-10 makes the state of the Mersenne Twister that cpu's kernels
    draw from, of the seed and of the offset, which grows by 4 with each launch.
    """
    seed = int(seed)
    if _C.device_count():
        _generator(None).manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seed every device."""
    seed = int(seed)
    for generator in _generators():
        generator.manual_seed(seed)


def seed() -> None:
    """Seed the current device from the system's randomness."""
    if _C.device_count():
        _generator(None).seed()


def seed_all() -> None:
    """Seed every device with one number from the system's randomness."""
    generators = _generators()
    if generators:
        manual_seed_all(generators[0].seed())


def initial_seed() -> int:
    """Return the current device's seed."""
    generator = _generator(None)
    _lazy_init()
    return generator.initial_seed()


__all__ = own_names(globals())
