"""What a compiled step keeps for one set of shapes, and how it is compared."""

from __future__ import annotations

import random
import sys
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from npu_dispatch import npu

__all__ = ["Program", "host_randomness", "like", "own_code"]


def own_code(function: Any) -> Any:
    """Return the function with a code object of its own, by which Dynamo counts."""
    return types.FunctionType(
        function.__code__.replace(),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )


def host_randomness() -> Any:
    numpy = sys.modules.get("numpy")
    return (
        random.getstate(),
        torch.get_rng_state().numpy().tobytes(),
        numpy and [str(part) for part in numpy.random.get_state()[1:]],
    )


def like(tensor: Tensor, device: torch.device) -> Tensor:
    return torch.empty_like(tensor, device=device, requires_grad=False)


class Program:
    """A step for one set of shapes: its calls so far, and its graph if it has one."""

    def __init__(self) -> None:
        self.warm_ups = 0
        self.settled = False
        self.graph: npu.NPUGraph | None = None
        self.unchanged: Callable[[], bool]  # what the graph has as constants
        self.inputs: list[Tensor] = []
        self.gradients: list[tuple[Tensor, Tensor]] = []  # for a step behind it
        self.results: list[Any] = []
        self.spec: Any = None

    def replay(self, tensors: list[Tensor]) -> Any:
        for static, given in zip(self.inputs, tensors, strict=True):
            static.copy_(given)
        assert self.graph is not None
        self.graph.replay()
        if self.spec is None:
            return self.results[0].clone()
        return pytree.tree_unflatten(
            [r.clone() if isinstance(r, Tensor) else r for r in self.results],
            self.spec,
        )
