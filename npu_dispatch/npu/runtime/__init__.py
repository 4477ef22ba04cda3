"""The runtime: its start and end, its devices, their load and errors."""

from __future__ import annotations

from typing import Any


def own_names(module: dict[str, Any]) -> list[str]:
    """Return the public names of what a module, or its package, defines."""
    here = module["__name__"]
    return [
        name
        for name, value in module.items()
        if name[0] != "_" and str(getattr(value, "__module__", "")).startswith(here)
    ]
