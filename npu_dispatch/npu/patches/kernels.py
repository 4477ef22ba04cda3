"""Tells the device that an operator has got another kernel, or goes.

Calls that are queued have the kernel of their launch, so they run first. What the
device knows of an operator, such as the shapes of its results, is of the kernels that
it had. torch tells nobody when Python exchanges one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._library.fake_impl import FakeImplHolder

from npu_dispatch import _C
from npu_dispatch.npu.patches.global_state import finish_queued

__all__ = ["tell_of_new_ones"]


def _full(name: str) -> str:
    return name if "." in name else name + "."


def _forget(name: str) -> None:
    _C.forget_operator(_full(name))


def _finish(names: Iterable[str]) -> None:
    known = sorted(name for name in names if _C.knows_operator(_full(name)))
    if known:
        finish_queued(
            f"another kernel of {', '.join(known)}",
            "they run the new kernel, or fail where there is none. Record the event "
            "before kernels are exchanged.",
        )


def _named(impls: Iterable[str], defs: Iterable[str]) -> set[str]:
    """Return the operators of a library; namespace/operator.overload/dispatch key."""
    return {"::".join(key.split("/")[:2]) for key in impls} | set(defs)


def _followed_impl(impl: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(impl)
    def call(library: Any, op_name: Any, *args: Any, **kwargs: Any) -> None:
        name = op_name if isinstance(op_name, str) else op_name._name
        name = name if "::" in name else f"{library.ns}::{name}"
        _finish([name])
        impl(library, op_name, *args, **kwargs)
        _forget(name)

    return call


def _followed_destroy(destroy: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(destroy)
    def call(library: Any) -> None:
        names = _named(library._op_impls, library._op_defs)
        _finish(names)
        destroy(library)
        for name in names:
            _forget(name)

    return call


def _followed_deletion(delete: Callable[..., None]) -> Callable[..., None]:
    """Follow what happens to a library that nobody has any more."""

    @functools.wraps(delete)
    def call(impls: Any, own_impls: Any, defs: Any, own_defs: Any, *more: Any) -> None:
        names = _named(own_impls, own_defs)
        _finish(names)
        delete(impls, own_impls, defs, own_defs, *more)
        for name in names:
            _forget(name)

    return call


def _followed_fake(register: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(register)
    def call(holder: Any, *args: Any, **kwargs: Any) -> Any:
        handle = register(holder, *args, **kwargs)
        deregister = handle._on_destroy

        def gone() -> None:
            deregister()
            _forget(holder.qualname)

        handle._on_destroy = gone
        _forget(holder.qualname)
        return handle

    return call


def tell_of_new_ones() -> None:
    """Follow what Python registers with torch.library."""
    library: Any = torch.library.Library
    library.impl = _followed_impl(library.impl)
    library._destroy = _followed_destroy(library._destroy)
    torch.library._del_library = _followed_deletion(torch.library._del_library)
    holder: Any = FakeImplHolder
    holder.register = _followed_fake(holder.register)
