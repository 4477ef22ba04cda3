"""Switches and kernels that hold for the whole process, in the order of launches.

A task runs under the switches and with the kernel of its launch, so a call that changes
one first waits for what is queued. A call that sets a switch to the value it has does
not wait.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from npu_dispatch import _C
from npu_dispatch.npu.patches.changes import change, replaces
from npu_dispatch.words import stream_title

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


def _finish_queued(name: str, otherwise: str, stacklevel: int) -> None:
    """Wait for queued work; warn, and say what it meets, where it cannot run."""
    alone = threading.active_count() == 1
    left = _C.finish_launched(_PATIENCE_ALONE_NS if alone else _PATIENCE_NS)
    for device, stream, tasks in left:
        warnings.warn(
            f"{name}: {stream_title(device, stream)} waits for an event that "
            f"nobody has recorded, so its {tasks} queued tasks could not run first: "
            f"{otherwise}",
            RuntimeWarning,
            stacklevel=stacklevel,
        )


def _in_order(setter: Callable[..., Any], getters: Sequence[str]) -> Callable[..., Any]:
    @functools.wraps(setter)
    def change(*args: Any, **kwargs: Any) -> Any:
        if _is_set(getters, args, kwargs):
            return setter(*args, **kwargs)
        _finish_queued(
            f"torch._C.{setter.__name__}",
            "they run under the new value of this switch. Record the event before, "
            "or change the switch before launching what waits for it.",
            stacklevel=4,
        )
        try:
            return setter(*args, **kwargs)
        finally:
            _C.read_switches()

    return change


@change
def keep_switches_in_order() -> None:
    """Make torch's setters wait for queued work, which still has the old state."""
    for name, getters in SETTERS.items():
        if setter := getattr(torch._C, name, None):
            setattr(torch._C, name, _in_order(setter, getters))


# What the device knows of an operator, such as the shapes of its results, is of the
# kernels that it had. torch tells nobody when Python exchanges one.
def _full(name: str) -> str:
    return name if "." in name else name + "."


def _finish(names: Iterable[str]) -> None:
    known = sorted(name for name in names if _C.knows_operator(_full(name)))
    if known:
        _finish_queued(
            f"another kernel of {', '.join(known)}",
            "they run the new kernel, or fail where there is none. Record the event "
            "before kernels are exchanged.",
            stacklevel=5,
        )


def _forget(names: Iterable[str]) -> None:
    for name in names:
        _C.forget_operator(_full(name))


def _named(impls: Iterable[str], defs: Iterable[str]) -> set[str]:
    """Return the operators of a library; namespace/operator.overload/dispatch key."""
    return {"::".join(key.split("/")[:2]) for key in impls} | set(defs)


@replaces("torch.library:Library.impl")
def follow_impl(
    impl: Any, library: Any, op_name: Any, *args: Any, **kwargs: Any
) -> None:
    """Follow a kernel that a library gives an operator."""
    name = op_name if isinstance(op_name, str) else op_name._name
    name = name if "::" in name else f"{library.ns}::{name}"
    _finish([name])
    impl(library, op_name, *args, **kwargs)
    _forget([name])


@replaces("torch.library:Library._destroy")
def follow_destroy(destroy: Any, library: Any) -> None:
    """Follow what a library takes back."""
    names = _named(library._op_impls, library._op_defs)
    _finish(names)
    destroy(library)
    _forget(names)


@replaces("torch.library:_del_library")
def follow_deletion(
    delete: Any, impls: Any, own_impls: Any, defs: Any, own_defs: Any, *more: Any
) -> None:
    """Follow what happens to a library that nobody has any more."""
    names = _named(own_impls, own_defs)
    _finish(names)
    delete(impls, own_impls, defs, own_defs, *more)
    _forget(names)


@replaces("torch._library.fake_impl:FakeImplHolder.register")
def follow_fake(register: Any, holder: Any, *args: Any, **kwargs: Any) -> Any:
    """Follow a shape function, and its end."""
    handle = register(holder, *args, **kwargs)
    deregister = handle._on_destroy

    def gone() -> None:
        deregister()
        _forget([holder.qualname])

    handle._on_destroy = gone
    _forget([holder.qualname])
    return handle
