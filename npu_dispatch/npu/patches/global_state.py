"""Switches of torch that hold for the whole process and that kernels read.

A task runs under the switches of its launch, so a call that changes one first waits
for what is queued. A call that sets one to the value it has does not wait.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from npu_dispatch import _C
from npu_dispatch.stream_names import stream_title

# By setter: the functions that read the values it sets; they take the arguments that
# come before these. Without any, it always waits.
SETTERS: dict[str, Sequence[str]] = {
    "_set_cpu_allow_fp16_reduced_precision_reduction": (
        "_get_cpu_allow_fp16_reduced_precision_reduction",
    ),
    "_set_default_dtype": ("get_default_dtype",),
    "_set_default_tensor_type": (),
    "_set_deterministic_algorithms": (
        "_get_deterministic_algorithms",
        "_get_deterministic_algorithms_warn_only",
    ),
    "_set_deterministic_fill_uninitialized_memory": (
        "_get_deterministic_fill_uninitialized_memory",
    ),
    "_set_float32_matmul_precision": (),
    "_set_fp32_precision_setter": ("_get_fp32_precision_getter",),
    "_set_mkldnn_deterministic": ("_get_mkldnn_deterministic",),
    "_set_mkldnn_enabled": ("_get_mkldnn_enabled",),
    "_set_nnpack_enabled": ("_get_nnpack_enabled",),
    "_set_onednn_allow_tf32": (),
    "_set_qengine": ("_get_qengine",),
}
# How long to wait for a stream that waits for an event which nobody has recorded,
# as another thread may still record it. Where this is the only thread, nobody can.
_PATIENCE_NS, _PATIENCE_ALONE_NS = 5_000_000_000, 200_000_000


def _is_set(getters: Sequence[str], args: Sequence[Any], more: dict[str, Any]) -> bool:
    """Return whether the switches have the values of a setter's arguments."""
    given = [*args, *more.values()]
    if len(given) < len(getters) == 2:
        given.append(False)  # warn_only
    named = len(given) - len(getters)
    if not getters or named < 0:
        return False
    return all(
        getattr(torch._C, getter)(*given[:named]) == value
        for getter, value in zip(getters, given[named:], strict=True)
    )


def finish_queued(name: str, otherwise: str) -> None:
    """Wait for queued work; warn, and say what it meets, where it cannot run."""
    alone = threading.active_count() == 1
    left = _C.finish_launched(_PATIENCE_ALONE_NS if alone else _PATIENCE_NS)
    for device, stream, tasks in left:
        warnings.warn(
            f"{name}: {stream_title(device, stream)} waits for an event that "
            f"nobody has recorded, so its {tasks} queued tasks could not run first: "
            f"{otherwise}",
            RuntimeWarning,
            stacklevel=4,
        )


def _in_order(setter: Callable[..., Any], getters: Sequence[str]) -> Callable[..., Any]:
    @functools.wraps(setter)
    def change(*args: Any, **kwargs: Any) -> Any:
        if _is_set(getters, args, kwargs):
            return setter(*args, **kwargs)
        finish_queued(
            f"torch._C.{setter.__name__}",
            "they run under the new value of this switch. Record the event before, "
            "or change the switch before launching what waits for it.",
        )
        try:
            return setter(*args, **kwargs)
        finally:
            _C.read_switches()

    return change


def keep_in_order() -> None:
    """Make torch's setters wait for queued work, which still has the old state."""
    for name, getters in SETTERS.items():
        setter = getattr(torch._C, name, None)
        if setter is not None and not hasattr(setter, "__wrapped__"):
            setattr(torch._C, name, _in_order(setter, getters))
