"""The Python state of a program that a captured step depends on."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from npu_dispatch import _C

__all__ = ["Watched"]


class Watched:
    """Modules' attributes, and an optimizer's groups and state, as they are now.

    A graph reads parameters, buffers and states where they are, and holds every
    other value as a constant.
    """

    def __init__(
        self,
        modules: list[nn.Module],
        optimizer: torch.optim.Optimizer,
        scaler: torch.amp.GradScaler | None,
        ignored: set[str],
    ) -> None:
        self._names: list[str] = []
        containers: list[Any] = []

        def add(name: str, container: Any) -> None:
            self._names.append(name)
            containers.append(container)

        for root in modules:
            for path, module in root.named_modules():
                name = ".".join(filter(None, (type(root).__name__, path)))
                add(name, vars(module))
                for key, value in vars(module).items():
                    if isinstance(value, dict):
                        add(name if key[0] == "_" else f"{name}.{key}", value)
        name = type(optimizer).__name__
        add(name, vars(optimizer))
        for i, group in enumerate(optimizer.param_groups):
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

    def difference(self) -> str:
        """Say what has changed."""
        found = self._watch.difference()
        if found is None:
            return "nothing"
        index, key = found
        name = self._names[index]
        return f"{name}.{key}" if isinstance(key, str) else f"the contents of {name}"
