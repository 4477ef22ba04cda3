"""Bugs to plant, each of a kind that has been or may be: the fuzzer must find them.

A function plants one for the rest of its process, in a kernel of the device or in
what leads to it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import torch

BUGS: dict[str, Callable[[], None]] = {}
_KEPT: list[torch.library.Library] = []


def bug(plant: Callable[[], None]) -> Callable[[], None]:
    BUGS[plant.__name__] = plant
    return plant


def _replace(name: str, kernel: Callable[..., Any]) -> None:
    library = torch.library.Library("aten", "IMPL", "PrivateUse1")
    library.impl(name, kernel, allow_override=True)
    _KEPT.append(library)


@bug
def remembers_a_shape() -> None:
    """Another sum or product of a shape and dtype is the last one of them."""
    seen: dict[Any, torch.Tensor] = {}

    def plant(name: str, compute: Callable[..., torch.Tensor]) -> None:
        def kernel(x: torch.Tensor, y: Any, **options: Any) -> torch.Tensor:
            other = y.cpu() if isinstance(y, torch.Tensor) else y
            now = compute(x.cpu(), other, **options)
            return seen.setdefault((name, now.shape, now.dtype), now).to(x.device)

        _replace(name, kernel)

    plant("add.Tensor", torch.add)
    plant("mul.Tensor", torch.mul)


@bug
def wrong_strides() -> None:
    """A transposed tensor's copy in another dtype is contiguous."""
    convert = torch.Tensor.to

    def to(self: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
        found = convert(self, *arguments, **options)
        if self.device.type == "cpu" or "cpu" in arguments or options:
            return found
        return found.contiguous()

    torch.Tensor.to = to  # type: ignore[method-assign]


@bug
def uncounted_write() -> None:
    """mul_ by a tensor does not count as a write."""
    multiply = torch.Tensor.mul_

    def mul_(self: torch.Tensor, other: Any) -> torch.Tensor:
        if self.device.type == "cpu" or self.requires_grad:
            return multiply(self, other)
        before = None if self.is_inference() else self._version
        multiply(self, other)
        if before is not None:
            torch._C._autograd._unsafe_set_version_counter((self,), (before,))
        return self

    torch.Tensor.mul_ = mul_  # type: ignore[method-assign]


@bug
def lost_alias() -> None:
    """A view by select() is a copy."""
    select = torch.Tensor.__getitem__

    def getitem(self: torch.Tensor, index: Any) -> torch.Tensor:
        found = select(self, index)
        copies = self.device.type != "cpu" and isinstance(index, int)
        return found.clone() if copies else found

    torch.Tensor.__getitem__ = getitem  # type: ignore[method-assign]


@bug
def other_words() -> None:
    """A wrong shape is told in other words."""
    add = torch.add

    def other_add(x: Any, y: Any, **options: Any) -> Any:
        try:
            return add(x, y, **options)
        except RuntimeError as error:
            if isinstance(x, torch.Tensor) and x.device.type != "cpu":
                raise RuntimeError(f"{error}!") from None
            raise

    torch.add = other_add


@bug
def no_wait_between_streams() -> None:
    """A stream does not wait for another's event: values come too early."""

    def wait(self: Any, stream: Any = None) -> None:
        return None

    torch.npu.Event.wait = wait  # type: ignore[method-assign]


@bug
def forgets_default_dtype() -> None:
    """A factory asks once which dtype is the default one."""
    asked: list[torch.dtype] = []

    def other(factory: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def make(*arguments: Any, **options: Any) -> torch.Tensor:
            on_cpu = str(options.get("device", "cpu")) == "cpu"
            if not on_cpu and "dtype" not in options:
                asked.append(torch.get_default_dtype())
                options["dtype"] = asked[0]
            return factory(*arguments, **options)

        return make

    for name in ("ones", "zeros", "linspace", "eye", "logspace", "hann_window"):
        setattr(torch, name, other(getattr(torch, name)))


@bug
def kills_the_process() -> None:
    """Reducing nothing is a bad access."""
    reduce = torch.Tensor.sum

    def other_sum(self: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        if self.device.type != "cpu" and self.numel() == 0:
            os.kill(os.getpid(), signal.SIGSEGV)
        return reduce(self, *arguments, **options)

    torch.Tensor.sum = other_sum  # type: ignore[method-assign]


@bug
def gradient_layout() -> None:
    """backward() takes a permuted gradient for a contiguous one."""
    backward = torch.Tensor.backward

    def other(self: torch.Tensor, gradient: Any = None, *rest: Any, **options: Any):
        if gradient is not None and gradient.device.type != "cpu":
            strides = torch.empty(gradient.shape, device="meta").stride()
            if 0 not in gradient.stride():  # So that it fits.
                gradient = gradient.as_strided(gradient.shape, strides)
        return backward(self, gradient, *rest, **options)

    torch.Tensor.backward = other  # type: ignore[method-assign]
