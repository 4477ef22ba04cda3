"""Programs whose time on a device follows from its spec by hand, by name.

Each step is a call of a model without gradients, and keeps the device busy.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from _peers import Call
from torch import nn

from npu_dispatch import npu
from npu_dispatch.plan.spec import Spec

_COUNT = 8
_SIDE = 1024  # of a matrix
_COPIED = 1 << 20  # elements
_SLEEP_NS = 500_000
_FLOAT = 4  # bytes


class Repeated(nn.Module):
    """So many calls of one function."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        self.call = call

    def forward(self) -> None:
        for _ in range(_COUNT):
            self.call()


def _products() -> Call:
    a, b, out = (torch.ones(_SIDE, _SIDE, device="npu") for _ in range(3))
    return lambda: torch.mm(a, b, out=out)


def _products_us(spec: Spec) -> float:
    n = spec.numbers
    flops_per_us = n["tflops"]["fp32"] * n["efficiency"]["arithmetic"] * 1e6
    return n["latency_us"]["kernel"] + 2 * _SIDE**3 / flops_per_us


def _copies() -> Call:
    here = torch.ones(_COPIED).pin_memory()
    there = torch.ones(_COPIED, device="npu")
    return lambda: there.copy_(here, non_blocking=True)


def _copies_us(spec: Spec) -> float:
    n = spec.numbers
    bytes_per_us = n["link"]["gb_per_s"] * 1e3
    return n["latency_us"]["copy"] + _FLOAT * _COPIED / bytes_per_us


def _sleeps() -> Call:
    return lambda: npu._sleep(_SLEEP_NS)


def _sleeps_us(_: Spec) -> float:
    return _SLEEP_NS / 1e3


_PROGRAMS: dict[str, tuple[Callable[[], Call], Callable[[Spec], float]]] = {
    "products": (_products, _products_us),
    "copies": (_copies, _copies_us),
    "sleeps": (_sleeps, _sleeps_us),
}
STATED = tuple(_PROGRAMS)


def stated(name: str) -> Call:
    return torch.no_grad()(Repeated(_PROGRAMS[name][0]()))


def stated_us(name: str, spec: Spec) -> float:
    """Return how long a step takes that device."""
    return _COUNT * _PROGRAMS[name][1](spec)
