"""Numeric switches, whose values are kept and change nothing: kernels are the host's.

float32 stays float32.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from npu_dispatch import _C
from npu_dispatch.config import Config
from npu_dispatch.npu.runtime.codes import coded
from npu_dispatch.npu.runtime.start import _lazy_init

__all__ = ["aclnn", "config", "conv", "matmul"]


def _only_bool(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise coded(TypeError, f"{name} must be a bool, but got {type(value).__name__}")
    return value


def _truth(name: str, value: object) -> bool:
    """Return a value's truth; raise TypeError for a str, as "False" is true."""
    if isinstance(value, (str, bytes)):
        raise coded(TypeError, f"{name} must be a bool, but got {value!r}")
    return bool(value)


class _Hf32:
    """Whether float32 may be computed with fewer bits, for the whole process.

    This is a permission. The value is kept, but the device does not make use of it,
    because the host has no such unit: float32 is computed as on cpu. As with
    torch_npu, an unknown attribute reads None, and setting one is ignored.
    """

    def __init__(self, allowed: bool) -> None:
        object.__setattr__(self, "allow_hf32", allowed)

    def __setattr__(self, name: str, value: object) -> None:
        if name == "allow_hf32":
            object.__setattr__(self, name, _only_bool(name, value))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


matmul = _Hf32(False)
conv = _Hf32(True)


class _Aclnn:
    """The switches of the operator library; `allow_hf32` is that of `conv`."""

    @property
    def allow_hf32(self) -> bool:
        """Whether convolutions may use fewer bits."""
        allowed: bool = conv.allow_hf32
        return allowed

    @allow_hf32.setter
    def allow_hf32(self, value: object) -> None:
        allowed = _truth("allow_hf32", value)
        if torch.backends.flags_frozen():  # type: ignore[no-untyped-call]
            raise coded(
                RuntimeError,
                "torch.npu.aclnn.allow_hf32 cannot be set after "
                "torch.backends.disable_global_flags(); use torch.npu.aclnn.flags()",
            )
        conv.allow_hf32 = allowed

    def version(self) -> None:
        """Warn that there is no such library, and return None."""
        warnings.warn("aclnn has no version on a virtual npu", stacklevel=2)

    @contextlib.contextmanager
    def flags(self, allow_hf32: bool = True) -> Iterator[None]:
        """Set the switch inside the block."""
        before, conv.allow_hf32 = conv.allow_hf32, _truth("allow_hf32", allow_hf32)
        try:
            yield
        finally:
            conv.allow_hf32 = before


aclnn = _Aclnn()


class _Config:
    """Settings of the framework, in which there are no private layouts."""

    allow_internal_format: bool

    def __init__(self) -> None:
        object.__setattr__(self, "allow_internal_format", False)

    def __setattr__(self, name: str, value: object) -> None:
        if name == "allow_internal_format":
            object.__setattr__(self, name, _only_bool(name, value))


config = _Config()


class _Kept:
    """The values of the functions below, for the whole process; the last one counts."""

    nd = True
    deterministic_level = 0
    compatible_impl = False
    op_timeout_ms = 0
    task_queue: int | None = None  # None: as Config says


def set_mm_bmm_format_nd(is_nd: bool = True) -> None:
    """Choose plain layouts for matrix products, the only ones that there are here."""
    _Kept.nd = _truth("is_nd", is_nd)


def get_mm_bmm_format_nd() -> bool:
    """Return what set_mm_bmm_format_nd() chose; True at first."""
    return _Kept.nd


def is_jit_compile_false() -> bool:
    """Start the runtime; return whether kernels are built beforehand, always True."""
    _lazy_init()
    return True


def set_compile_mode(jit_compile: bool = False) -> None:
    """Wait for the device, as a change of mode must; kernels stay the built ones.

    jit_compile=True gives a warning, since there is nothing to compile.
    """
    compiles = _truth("jit_compile", jit_compile)
    if _C.is_initialized():
        _C.synchronize()
    if compiles:
        warnings.warn("a virtual npu has pre-built kernels only", stacklevel=2)


def set_deterministic_level(level: int) -> None:
    """Set what must repeat exactly: 0 nothing, 1 each operator, 2 whole runs.

    1 and 2 switch torch.use_deterministic_algorithms on, and 0 switches it off.
    Kernels here repeat their results in any case.
    """
    if level not in (0, 1, 2):
        raise coded(ValueError, f"level must be 0, 1 or 2, but got {level!r}")
    torch.use_deterministic_algorithms(level > 0)
    _Kept.deterministic_level = level


def use_compatible_impl(is_enable: bool) -> None:
    """Prefer kernels that agree with other devices, as kernels here always do."""
    _Kept.compatible_impl = _only_bool("is_enable", is_enable)


def set_op_timeout_ms(ms: int) -> None:
    """Keep a limit for operators, in milliseconds, which is not enforced."""
    if not isinstance(ms, int) or isinstance(ms, bool):
        raise coded(TypeError, f"ms must be an int, but got {type(ms).__name__}")
    if ms < 0:
        raise coded(ValueError, f"ms must not be negative, but got {ms}")
    _Kept.op_timeout_ms = ms


def set_task_queue_enable(level: int) -> None:
    """Choose 0: every launch waits for its task; 1 or 2: launches are queued."""
    if level not in (0, 1, 2):
        raise coded(ValueError, f"level must be 0, 1 or 2, but got {level!r}")
    _C.set_launch_blocking(level == 0)
    _Kept.task_queue = level


def get_task_queue_enable() -> int:
    """Return the queue's level: at first that of TASK_QUEUE_ENABLE, or else 1."""
    return Config.read().task_queue if _Kept.task_queue is None else _Kept.task_queue


def get_cann_version(module: str = "CANN") -> str:
    """Return the version of a part of the vendor's software: "", as none is used."""
    if not isinstance(module, str):
        raise coded(TypeError, f"module must be a str, but got {type(module).__name__}")
    return ""
