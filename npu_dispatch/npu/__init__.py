"""torch.npu: the device as torch.cuda's users know it.

`import torch` loads this package, so it loads nothing more: __init__.pyi names
the exports, and each module comes in with the first use of one of its names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lazy_loader
from torch import OutOfMemoryError

import npu_dispatch
from npu_dispatch.errors import (
    DeferredNpuCallError,
    HostSyncError,
    HostSyncWarning,
)
from npu_dispatch.import_alias import refused_names

_load, _, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += [
    "DeferredNpuCallError",
    "HostSyncError",
    "HostSyncWarning",
    "OutOfMemoryError",
    "default_generators",
]
_compiler: Callable[[], Any] | None = None
_refuse = refused_names("torch.npu")


def _compile_with(register: Callable[[], Any]) -> None:
    """Let Inductor find the device: its first compile asks for `Scheduling`.

    `register` makes the device known to Inductor and returns that class. Other names
    that Inductor looks for do not exist, so it registers nothing more by itself.
    """
    global _compiler
    _compiler = register


def __getattr__(name: str) -> Any:
    # This is made at each use, as importing must not create generators.
    if name == "default_generators":
        return _load("random").default_generators
    if name == "_initialized":
        return _load("is_initialized")()
    if name in __all__:
        return _load(name)
    if name == "Scheduling" and _compiler:
        return _compiler()
    return _refuse(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


# `import npu_dispatch.npu` may be what imports torch. Torch's entry point then
# finds this module unfinished and leaves the registration to it.
_is_whole = True
npu_dispatch._register_where_torch_asked()
