"""When the device runtime starts, and what waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from npu_dispatch import _C
from npu_dispatch.errors import DeferredNpuCallError
from npu_dispatch.npu._codes import coded

__all__ = ["init", "is_initialized"]

_lock = threading.RLock()
_waiting: list[Callable[[], object]] = []


def is_initialized() -> bool:
    """Return whether the runtime has started; False in a bad fork."""
    return _C.is_initialized() and not _C.in_bad_fork()


def _is_in_bad_fork() -> bool:
    """Return whether this process was forked from one that had initialised."""
    return _C.in_bad_fork()


def init() -> None:
    """Start the runtime, then run what was queued for it. Idempotent."""
    _lazy_init()


def _lazy_init() -> None:
    """Start the runtime, unless it runs; in a bad fork, a RuntimeError."""
    if is_initialized() and not _waiting:
        return
    if _C.in_bad_fork():
        raise coded(
            RuntimeError,
            "Cannot re-initialize NPU in forked subprocess. To use NPU with "
            "multiprocessing, you must use the 'spawn' start method",
        )
    with _lock:
        _C.init()
        while _waiting:
            call = _waiting.pop(0)
            try:
                call()
            except Exception as error:
                raise DeferredNpuCallError(
                    f"a call queued before initialisation failed: {error}"
                ) from error


def _lazy_call(call: Callable[[], object]) -> None:
    """Run `call` now if the runtime has started, or right after it starts."""
    with _lock:
        if is_initialized():
            call()
        else:
            _waiting.append(call)
