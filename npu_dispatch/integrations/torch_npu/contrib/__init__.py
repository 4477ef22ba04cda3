"""torch_npu.contrib: functions, modules, and transfer_to_npu.

transfer_to_npu takes effect when imported.
"""

from __future__ import annotations

from typing import Any

from npu_dispatch.integrations.torch_npu.contrib import function, module

__all__ = ["function", "module"]


def __getattr__(name: str) -> Any:
    """Return what is in one of the two."""
    return getattr(function if name in vars(function) else module, name)
