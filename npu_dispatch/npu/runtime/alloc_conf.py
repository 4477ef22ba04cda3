"""Settings of the allocators: PYTORCH_NPU_ALLOC_CONF, "key:value,key:value"."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

from npu_dispatch import _C
from npu_dispatch.config import variable
from npu_dispatch.npu.runtime.codes import coded

_NAME = "PYTORCH_NPU_ALLOC_CONF"
_MIB = 1 << 20
_POWERS = 16  # of two, from 1 MiB on, that roundup_power2_divisions tells apart
_NO_LIMIT = 2**64 - 1


def _parts(text: str) -> list[str]:
    """Return the parts between commas; those in brackets stay together."""
    parts = (part.strip(" \t") for part in re.split(r",(?![^\[]*\])", text))
    return [part for part in parts if part]


# Readers of values raise KeyError or ValueError for a wrong one.
def _whole(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError
    return int(text)


def _mib(text: str) -> int:
    number = _whole(text)
    if not 20 < number <= _NO_LIMIT // _MIB:
        raise ValueError
    return number * _MIB


def _fraction(text: str) -> float:
    fraction = float(text)
    if not 0 < fraction <= 1:
        raise ValueError
    return fraction


def _fraction_below_one(text: str) -> float:
    if (fraction := _fraction(text)) == 1:
        raise ValueError
    return fraction


def _power(text: str) -> int:
    number = _whole(text)
    if number.bit_count() != 1 or number >= 2**32:
        raise ValueError
    return number


def _divisions(text: str) -> list[int]:
    """Read "N", or "[MiB:N,...,>:N]".

    An entry is for the sizes from its own up to twice that, and for all smaller sizes
    that no earlier entry is for.
    """
    if not text.startswith("["):
        return [_power(text)] * _POWERS
    if not text.endswith("]"):
        raise ValueError
    divisions: list[int] = []
    for part in _parts(text[1:-1]):
        size, _, count = (piece.strip(" \t") for piece in part.partition(":"))
        end = _POWERS if size == ">" else min(_power(size).bit_length(), _POWERS)
        divisions += [_power(count)] * (end - len(divisions))
    return divisions + [0] * (_POWERS - len(divisions))


_Reader = tuple[str, Callable[[str], Any]]  # what a value must be, and who reads it
_BOOL: _Reader = (
    "True or False",
    {
        **dict.fromkeys(("True", "true", "1"), True),
        **dict.fromkeys(("False", "false", "0"), False),
    }.__getitem__,
)
_NUMBER: _Reader = ("a number", _whole)
_NUMBER_OF_MIB: _Reader = ("a number of MiB above 20", _mib)
_BACKEND = (
    "native or guard; for an allocator of your own use "
    "torch.npu.memory.change_current_allocator()"
)
_HONOURED: dict[str, _Reader] = {
    "max_split_size_mb": _NUMBER_OF_MIB,
    "max_non_split_rounding_mb": _NUMBER_OF_MIB,
    "garbage_collection_threshold": ("above 0 and below 1", _fraction_below_one),
    "roundup_power2_divisions": (
        "a power of two, or a list such as [256:1,512:2,>:4] of powers of two by MiB",
        _divisions,
    ),
    "per_process_memory_fraction": ("above 0 and at most 1", _fraction),
    "expandable_segments": _BOOL,
    "base_addr_aligned_kb": ("0 to 16", {str(n): n for n in range(17)}.__getitem__),
    "page_size": ("1g", {"1g": 2**30}.__getitem__),
    "backend": (_BACKEND, {"native": False, "guard": True}.__getitem__),
}
# Those of torch and torch_npu without effect here: pinned memory is plain memory, the
# allocator's lock is never held while the driver is called, and pending blocks are
# looked at a few at a time.
_KEYS = _HONOURED | {
    "pinned_use_host_register": _BOOL,
    "pinned_use_cuda_host_register": _BOOL,
    "pinned_use_hip_host_register": _BOOL,
    "pinned_num_register_threads": _NUMBER,
    "pinned_use_background_threads": _BOOL,
    "pinned_reserve_segment_size_mb": _NUMBER,
    "pinned_max_round_threshold_mb": _NUMBER,
    "pinned_max_cached_size_mb": _NUMBER,
    "pinned_free_catch_all": _BOOL,
    "pinned_mem_register": _BOOL,
    "pin_memory_expandable_segments": _BOOL,
    "release_lock_on_malloc": _BOOL,
    "release_lock_on_npumalloc": _BOOL,
    "release_lock_on_cudamalloc": _BOOL,
    "release_lock_on_hipmalloc": _BOOL,
    "throw_on_npumalloc_oom": _BOOL,
    "throw_on_cudamalloc_oom": _BOOL,
    "graph_capture_record_stream_reuse": _BOOL,
    "multi_stream_lazy_reclaim": _BOOL,
    "large_segment_size_mb": _NUMBER,
    "segment_size_mb": _NUMBER,
    "roundup_bypass_threshold_mb": _NUMBER,
}
_current: tuple[str, dict[str, Any]] | None = None
_told: set[str] = set()


def parse(text: str) -> dict[str, Any]:
    """Return the values by key; RuntimeError says what is wrong and would be right."""
    values = {}
    for entry in _parts(text):
        key, colon, value = (piece.strip(" \t") for piece in entry.partition(":"))
        if not colon:
            raise _wrong(f"an entry must be key:value, but got '{entry}'")
        if key not in _KEYS:
            raise _wrong(f"unknown key '{key}'; the keys are {', '.join(_HONOURED)}")
        right, read = _KEYS[key]
        try:
            values[key] = read(value)
        except (KeyError, ValueError):
            raise _wrong(f"{key} must be {right}, but got '{value}'") from None
    return values


def _wrong(what: str) -> RuntimeError:
    return coded(RuntimeError, f"{_NAME}: {what}")


def _install(text: str, values: dict[str, Any]) -> None:
    global _current
    for key in values:
        if key not in _HONOURED and key not in _told:
            _told.add(key)
            print(
                f"npu_dispatch: {_NAME}: {key} has no effect on this device",
                file=sys.stderr,
            )
    _C.set_allocator_settings(
        values.get("max_split_size_mb", _NO_LIMIT),
        values.get("max_non_split_rounding_mb", 20 * _MIB),
        values.get("per_process_memory_fraction", 0.0),
        values.get("garbage_collection_threshold", 0.0),
        values.get("roundup_power2_divisions", [0] * _POWERS),
    )
    _current = text, values


def read_environment() -> None:
    """Do what the variable asks for, at the first use of the device."""
    if _current is not None:
        return
    text = variable("PYTORCH_NPU_ALLOC_CONF") or ""
    values = parse(text)
    if values.get("backend"):
        _C.guard_memory()
    _install(text, values)


def _set_allocator_settings(env: str) -> None:
    """Replace what PYTORCH_NPU_ALLOC_CONF said, for allocations from now on.

    `env` has the form of that variable, "key:value,key:value". Raises RuntimeError,
    and changes nothing, for a key that the variable does not have, or a value that
    the key does not accept.
    """
    values = parse(env)
    if values.get("backend"):
        raise coded(
            RuntimeError,
            f"backend:guard can only be asked for in the environment, as {_NAME}: "
            "memory that is in use has no margins",
        )
    _install(env, values)


def allocator_settings() -> dict[str, Any]:
    """Return the settings as torch.cuda's snapshots have them."""
    text, values = _current or ("", {})
    divisions = values.get("roundup_power2_divisions", [0] * _POWERS)
    return {
        _NAME: text,
        "max_split_size": values.get("max_split_size_mb", -1),
        "garbage_collection_threshold": values.get("garbage_collection_threshold", 0.0),
        "expandable_segments": values.get("expandable_segments", False),
        "roundup_power2_divisions": {str(1 << i): n for i, n in enumerate(divisions)},
    }
