"""torch.npu: the device as torch.cuda's users know it.

`import torch` loads this package, so it loads nothing more: __init__.pyi names
the exports, and each module comes in with the first use of one of its names.
"""

from __future__ import annotations

from typing import Any

import lazy_loader
from torch import OutOfMemoryError

from npu_dispatch.errors import (
    DeferredNpuCallError,
    HostSyncError,
    HostSyncWarning,
)

_load, _, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += [
    "DeferredNpuCallError",
    "HostSyncError",
    "HostSyncWarning",
    "OutOfMemoryError",
    "default_generators",
]


def __getattr__(name: str) -> Any:
    # Made at each use: importing must not create generators.
    if name == "default_generators":
        return _load("random").default_generators
    if name == "_initialized":
        return _load("is_initialized")()
    if name in __all__:
        return _load(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
