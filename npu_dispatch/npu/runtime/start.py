"""When the device runtime starts, and what waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from npu_dispatch import _C
from npu_dispatch.config import variable
from npu_dispatch.errors import DeferredNpuCallError
from npu_dispatch.npu.runtime.codes import coded

__all__ = ["init", "is_initialized"]

_lock = threading.RLock()
# A call leaves the list only when it has returned, so that other threads take the
# lock until then.
_waiting: list[Callable[[], object]] = []
_started = False  # _C.init() has returned
_running = False  # under the lock: the thread is inside a call of the list


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
    """Start the runtime unless it runs; raise RuntimeError in a bad fork."""
    global _started
    if _started and not _waiting and not _C.in_bad_fork():
        return
    if _C.in_bad_fork():
        raise coded(
            RuntimeError,
            "Cannot re-initialize NPU in forked subprocess. To use NPU with "
            "multiprocessing, you must use the 'spawn' start method",
        )
    with _lock:
        if _running:
            return
        if variable("PYTORCH_NPU_ALLOC_CONF"):
            # Who sets nothing does not pay for the import.
            from npu_dispatch.npu.runtime import alloc_conf

            alloc_conf.read_environment()
        _C.init()
        _started = True
        while _waiting:
            _run_next()


def _run_next() -> None:
    global _running
    _running = True
    try:
        _waiting[0]()
    except Exception as error:
        raise DeferredNpuCallError(
            f"a call queued before initialisation failed: {error}"
        ) from error
    finally:
        _running = False
        _waiting.pop(0)


def _lazy_call(call: Callable[[], object]) -> None:
    """Run `call` now if the runtime has started, or right after it starts."""
    with _lock:
        if is_initialized():
            call()
        else:
            _waiting.append(call)
