"""Device memory in torch's profiles, which is reported from the first profile on.

To ask at each allocation whether this thread is profiled would slow down programs
that never are, and torch has no other sign that a profile begins.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch.autograd.profiler

from npu_dispatch import _C

_STARTS = (
    (torch.autograd, "_enable_profiler"),
    (torch.autograd, "_enable_profiler_legacy"),
    (torch.autograd.profiler, "_enable_profiler"),
)


def _reporting(start: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(start)
    def begin(*args: Any, **kwargs: Any) -> Any:
        _C.report_memory()
        return start(*args, **kwargs)

    return begin


def report_to_profiles() -> None:
    """Make torch's profilers have device memory reported."""
    for module, name in _STARTS:
        start = getattr(module, name, None)
        if start is not None and not hasattr(start, "__wrapped__"):
            setattr(module, name, _reporting(start))
