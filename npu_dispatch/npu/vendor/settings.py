"""Switches, options and limits under torch_npu's names, checked and kept.

Kernels are the host's, so that few of them change anything: float32 stays float32.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import torch

from npu_dispatch import _C
from npu_dispatch.config import Config
from npu_dispatch.npu.runtime.codes import coded, expect, expect_one_of
from npu_dispatch.npu.runtime.devices import Device, checked_index
from npu_dispatch.npu.runtime.start import _lazy_init


def _truth(name: str, value: object) -> bool:
    """Return a value's truth; raise TypeError for a str, as "False" is true."""
    if isinstance(value, (str, bytes)):
        raise coded(TypeError, f"{name} must be a bool, but got {value!r}")
    return bool(value)


class _Switch:
    """One bool for the whole process; as with torch_npu, other names are ignored."""

    allow_hf32: bool
    allow_internal_format: bool

    def __init__(self, **value: bool) -> None:
        vars(self).update(value)

    def __setattr__(self, name: str, value: object) -> None:
        if name in vars(self):
            expect(value, bool, name)
            vars(self)[name] = value


class _Hf32(_Switch):
    """Whether float32 may be computed with fewer bits, for the whole process.

    This is a permission. The value is kept, but the device does not make use of it,
    because the host has no such unit: float32 is computed as on cpu. As with
    torch_npu, an unknown attribute reads None, and setting one is ignored.
    """

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


matmul = _Hf32(allow_hf32=False)
conv = _Hf32(allow_hf32=True)
config = _Switch(allow_internal_format=False)  # there are no private layouts


class _Aclnn:
    """The switches of the operator library; `allow_hf32` is that of `conv`."""

    @property
    def allow_hf32(self) -> bool:
        """Whether convolutions may use fewer bits."""
        return conv.allow_hf32

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


class _Kept:
    """The values of the functions below, for the whole process; the last one counts."""

    nd = True
    task_queue: int | None = None  # None: as Config says
    options: ClassVar[dict[str, str]] = {}  # by set_option()


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
    expect_one_of(level, (0, 1, 2), "level", ValueError)
    torch.use_deterministic_algorithms(level > 0)


def use_compatible_impl(is_enable: bool) -> None:
    """Prefer kernels that agree with other devices, as kernels here always do."""
    expect(is_enable, bool, "is_enable")


def set_op_timeout_ms(ms: int) -> None:
    """Accept a limit for operators, in milliseconds, which is not enforced."""
    expect(ms, int, "ms")
    if ms < 0:
        raise coded(ValueError, f"ms must not be negative, but got {ms}")


def set_task_queue_enable(level: int) -> None:
    """Choose 0: every launch waits for its task; 1 or 2: launches are queued."""
    expect_one_of(level, (0, 1, 2), "level", ValueError)
    _C.set_launch_blocking(level == 0)
    _Kept.task_queue = level


def get_task_queue_enable() -> int:
    """Return the queue's level: at first that of TASK_QUEUE_ENABLE, or else 1."""
    return Config.read().task_queue if _Kept.task_queue is None else _Kept.task_queue


def get_cann_version(module: str = "CANN") -> str:
    """Return the version of a part of the vendor's software: "", as none is used."""
    expect(module, str, "module")
    return ""


# The values that each option may have; with None, any text.
_OPTIONS: dict[str, tuple[str, ...] | None] = {
    "ACL_PRECISION_MODE": ("allow_fp32_to_fp16", "must_keep_origin_dtype"),
    "ACL_OP_SELECT_IMPL_MODE": ("high_performance", "high_precision"),
    "ACL_AICORE_NUM": tuple(map(str, range(1, 33))),
    "ACL_OP_DEBUG_LEVEL": tuple(map(str, range(5))),
    "ACL_OP_COMPILER_CACHE_MODE": ("disable", "enable", "force"),
    "ACL_OPTYPELIST_FOR_IMPLMODE": None,
    "ACL_DEBUG_DIR": None,
    "ACL_OP_COMPILER_CACHE_DIR": None,
    "ACL_OP_DEBUG_OPTION": None,
    "MM_BMM_ND_ENABLE": ("disable", "enable"),
    "NPU_FUZZY_COMPILE_BLACKLIST": None,
    "ALLOW_CONV_HF32": ("disable", "enable"),
    "ALLOW_MATMUL_HF32": ("disable", "enable"),
    "jitCompile": ("disable", "enable"),
    "autotune": ("disable", "enable"),
    "autotunegraphdumppath": None,
    "bmmv2_enable": ("0", "1"),
    "deliverswitch": ("disable", "enable"),
    "dynamicCompileswitch": ("disable", "enable"),
    "mdldumpconfigpath": None,
    "mdldumpswitch": ("disable", "enable", "init"),
    "profilerResultPath": None,
    "profiling": ("stop", "finalize"),
}
_DEPRECATED = {"ACL_OP_SELECT_IMPL_MODE", "ACL_OPTYPELIST_FOR_IMPLMODE"}


def set_option(option: dict[str, object]) -> None:
    """Set options by name. All are checked before any is set.

    Raises TypeError for anything but a dict with str keys, RuntimeError for an unknown
    name, and ValueError for a value that the option cannot have. Kernels here do not
    depend on options; MM_BMM_ND_ENABLE also calls set_mm_bmm_format_nd().
    """
    expect(option, dict, "option")
    checked = {}
    for name, value in option.items():
        expect(name, str, "an option's name")
        if name not in _OPTIONS:
            raise coded(RuntimeError, f"invalid npu option name: {name}")
        allowed, text = _OPTIONS[name], str(value)
        if allowed is not None:
            expect_one_of(text, allowed, name, ValueError)
        checked[name] = text
    for name in checked:
        if name in _DEPRECATED:
            warnings.warn(f"npu option {name} is deprecated", stacklevel=2)
    _Kept.options.update(checked)
    if "MM_BMM_ND_ENABLE" in checked:
        set_mm_bmm_format_nd(checked["MM_BMM_ND_ENABLE"] == "enable")


def set_aoe(dump_path: str) -> None:
    """Make the folder for the tuner's subgraphs; warn that none are written."""
    expect(dump_path, str, "dump_path")
    Path(dump_path).mkdir(parents=True, exist_ok=True)
    warnings.warn("a virtual npu has no tuner: nothing is written", stacklevel=2)


Limit = dict[str, int]

# By device and stream; the stream -1 stands for the device itself.
_limits: dict[tuple[int, int], Limit] = {}
_CORES = os.cpu_count() or 1


def _set_limit(key: tuple[int, int], limit: Limit, *numbers: int) -> None:
    for name, value in zip(limit, numbers, strict=True):
        expect(value, int, name)
        if value == -1:
            continue
        if not 1 <= value <= _CORES:
            raise coded(RuntimeError, f"{name} must be 1 to {_CORES}, but got {value}")
        limit[name] = value
    # A virtual device has one kind of core, so the smaller number counts.
    _C.set_core_limit(*key, min(limit.values()))
    _limits[key] = limit


def set_device_limit(device: Device, cube_num: int = -1, vector_num: int = -1) -> None:
    """Limit the cores of a device's kernels that start from now on.

    Each kernel may use that many, however many streams are at work, so that results do
    not depend on what else runs. The smaller of the two numbers counts. -1 leaves a
    number as it is. Operators on cpu tensors are not limited. Raises TypeError or
    RuntimeError for anything that is not a number of this machine's cores.
    """
    key = checked_index(device), -1
    _set_limit(key, get_device_limit(device), cube_num, vector_num)


def get_device_limit(device: Device) -> Limit:
    """Return cube_core_num and vector_core_num of a device, at first all cores."""
    all_cores = {"cube_core_num": _CORES, "vector_core_num": _CORES}
    return dict(_limits.get((checked_index(device), -1), all_cores))


def _key(stream: torch.Stream) -> tuple[int, int]:
    if not isinstance(stream, torch.Stream):
        raise coded(TypeError, f"expected a torch.npu.Stream, but got {stream!r}")
    return stream.device_index, stream.stream_id


def set_stream_limit(
    stream: torch.Stream, cube_num: int = -1, vector_num: int = -1
) -> None:
    """Limit the cores of a stream's kernels that start from now on.

    A stream's limit is never above its device's. -1 leaves a number as it is; errors
    are those of set_device_limit().
    """
    _set_limit(_key(stream), get_stream_limit(stream), cube_num, vector_num)


def reset_stream_limit(stream: torch.Stream) -> None:
    """Take a stream's own limit away."""
    key = _key(stream)
    if _limits.pop(key, None):
        _C.set_core_limit(*key, 0)


def get_stream_limit(stream: torch.Stream) -> Limit:
    """Return a stream's limit, or its device's where it has none."""
    key = _key(stream)
    return dict(_limits.get(key) or get_device_limit(key[0]))
