"""Tells the device that an operator has got another kernel.

What the device knows of an operator, such as the shapes of its results, is of the
kernels that it had. torch tells nobody when Python exchanges one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._library.fake_impl import FakeImplHolder

from npu_dispatch import _C

__all__ = ["tell_of_new_ones"]


def _forget(name: str) -> None:
    _C.forget_operator(name if "." in name else name + ".")


def _followed_impl(impl: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(impl)
    def call(library: Any, op_name: Any, *args: Any, **kwargs: Any) -> None:
        impl(library, op_name, *args, **kwargs)
        name = op_name if isinstance(op_name, str) else op_name._name
        _forget(name if "::" in name else f"{library.ns}::{name}")

    return call


def _followed_destroy(destroy: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(destroy)
    def call(library: Any) -> None:
        # namespace/operator.overload/dispatch key
        names = {"::".join(key.split("/")[:2]) for key in library._op_impls}
        destroy(library)
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
    holder: Any = FakeImplHolder
    holder.register = _followed_fake(holder.register)
