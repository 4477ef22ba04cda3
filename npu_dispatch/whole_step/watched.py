"""The Python state of a program that a captured step depends on."""

from __future__ import annotations

import types
from typing import Any

import torch
from torch import Tensor, nn

from npu_dispatch import _C

__all__ = ["Watched", "tensors_in"]


# What every module has; others' values are attributes of its own.
_INNER = set(vars(nn.Module()))
_DEEPEST = 4


def tensors_in(name: str, value: Any, depth: int = 0) -> list[tuple[str, Any]]:
    """Return the dicts and lists, by name, through which tensors are found in it."""
    if isinstance(value, dict):
        inside: Any = value
        items: list[tuple[Any, Any]] = list(value.items())
    elif isinstance(value, list):
        inside, items = value, list(enumerate(value))
    elif hasattr(value, "__dict__") and not isinstance(
        value, (Tensor, nn.Module, type, types.FunctionType, types.ModuleType)
    ):
        return tensors_in(name, vars(value), depth)
    else:
        return []
    found = [
        pair
        for key, item in items
        if depth < _DEEPEST
        for pair in tensors_in(f"{name}.{key}", item, depth + 1)
    ]
    if found or any(isinstance(item, Tensor) for _, item in items):
        found.append((name, inside))
    return found


class Watched:
    """Where the tensors are that a graph reads, and what the optimizer was told.

    A graph reads parameters, buffers, states and modules' other tensors where they
    are. It has an optimizer's numbers as constants, if it takes the optimizer's step:
    `hyperparameters`. Those of the model are Dynamo's affair, whose guards know which
    of them its code has read.
    """

    def __init__(
        self,
        modules: list[nn.Module],
        optimizer: torch.optim.Optimizer,
        scaler: torch.amp.GradScaler | None,
        ignored: set[str],
        hyperparameters: bool = True,
    ) -> None:
        self._names: list[str] = []
        self._groups: set[str] = set()
        containers: list[Any] = []

        def add(name: str, container: Any) -> None:
            self._names.append(name)
            containers.append(container)

        for root in modules:
            for path, module in root.named_modules():
                name = ".".join(filter(None, (type(root).__name__, path)))
                add(name, module._parameters)
                add(name, module._buffers)
                own = {k: v for k, v in vars(module).items() if k not in _INNER}
                inside = tensors_in(name, own)
                for where, container in inside:
                    add(where, vars(module) if container is own else container)
        name = type(optimizer).__name__
        add(name, vars(optimizer))
        for i, group in enumerate(optimizer.param_groups):
            if hyperparameters:
                self._groups.add(f"{name}.param_groups[{i}]")
                add(f"{name}.param_groups[{i}]", group)
            add(f"{name}.param_groups[{i}].params", group["params"])
        add(f"{name}.state", optimizer.state)
        for state in optimizer.state.values():
            add(f"{name}.state", state)
        if scaler is not None:
            add(type(scaler).__name__, vars(scaler))
        self._watch = _C.Watch(containers, ignored)
        self._watch.kept = [
            (c, list(c.items()) if isinstance(c, dict) else list(c)) for c in containers
        ]
        self.intact = self._watch.intact

    def hooked(self) -> str:
        """Name a tensor that has a hook of its gradient; '' if none has."""
        return self._named(self._watch.hooked())

    def hyperparameter_changed(self) -> bool:
        """Return whether what has changed is a number of the optimizer's."""
        found = self._watch.difference()
        return found is not None and self._names[found[0]] in self._groups

    def difference(self) -> str:
        """Say what has changed."""
        return self._named(self._watch.difference()) or "nothing"

    def _named(self, found: tuple[int, Any] | None) -> str:
        if found is None:
            return ""
        index, key = found
        name = self._names[index]
        return f"{name}.{key}" if isinstance(key, str) else f"the contents of {name}"
