"""The table of operators that torch_npu and torch.ops.npu have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

__all__ = ["OPERATORS", "operator", "operator_of", "refuse"]

PAGE = "docs/torch_npu.md"
OPERATORS: dict[str, Callable[..., Any]] = {}

_torch_library: Any = torch.library  # without types
_library = _torch_library.Library("npu", "FRAGMENT")
_Function = TypeVar("_Function", bound=Callable[..., Any])


def operator(function: _Function) -> _Function:
    """Register a composition of operators as torch.ops.npu's of the same name."""
    schema = torch.library.infer_schema(function, mutates_args=())
    _register(function.__name__ + schema, function)
    OPERATORS[function.__name__] = function
    return function


def operator_of(*schemas: str) -> Callable[[Callable[..., Any]], Any]:
    """Register a composition under schemas, for arguments that it takes as keywords."""

    def register(function: Callable[..., Any]) -> Any:
        name = function.__name__
        for schema in schemas:
            _register(name + schema, function)
        OPERATORS[name] = getattr(torch.ops.npu, name)
        return OPERATORS[name]

    return register


def _register(schema: str, function: Callable[..., Any]) -> None:
    _library.define(schema)
    name = schema.partition("(")[0]
    _library.impl(name, function, "CompositeImplicitAutograd")


def refuse(name: str, **arguments: object) -> None:
    """Raise RuntimeError for the first argument that was given, that is, not None."""
    for argument, value in arguments.items():
        if value is not None:
            raise RuntimeError(
                f"{name} does not support this value of {argument} here: see {PAGE}"
            )
