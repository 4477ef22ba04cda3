"""When the device runtime starts, what waits for it, and how it ends.

What is queued at the end of a process is done first, unless Ctrl-C drops it.
"""

from __future__ import annotations

import atexit
import sys
import threading
from collections.abc import Callable
from multiprocessing import parent_process, util

from npu_dispatch import _C
from npu_dispatch.config import variable
from npu_dispatch.errors import DeferredNpuCallError
from npu_dispatch.npu.runtime.codes import coded

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


_AFTER_ALL_OTHERS = -(1 << 30)


def finish_or_drop() -> None:
    """Wait for every stream, and say so if that takes long; never raise.

    Queued Python code needs the interpreter, so this is not left to the end of
    the process. Ctrl-C drops what has not begun, as stop_device() does.
    """
    try:
        _C.finish_queues()
    except KeyboardInterrupt:
        for device in range(_C.device_count()):
            _C.stop_device(device)
        print("npu_dispatch: queued tasks were dropped", file=sys.stderr, flush=True)


def _leave() -> None:
    if parent_process() is None:
        return  # atexit's functions will run
    finish_or_drop()
    _C.remove_files()


def _leave_with_multiprocessing(_: object = None) -> None:
    util.Finalize(None, _leave, exitpriority=_AFTER_ALL_OTHERS)


_threads: list[tuple[threading.Thread, Callable[[], object]]] = []


def start_until_exit(thread: threading.Thread, end: Callable[[], object]) -> None:
    """Start a thread that `end()` ends, when all queues of the process are empty.

    The interpreter ends a thread that it leaves behind as soon as that thread needs
    it again, and a function of C++ on the thread's stack then ends the process.
    """
    _threads[:] = [one for one in _threads if one[0].is_alive()]
    thread.start()
    _threads.append((thread, end))


def _end_threads() -> None:
    for thread, end in _threads:
        if thread.is_alive():  # not in a forked child
            end()
            thread.join()


def finish_at_exit() -> None:
    """Have the process leave in order.

    A child of multiprocessing ends by os._exit(), which calls nothing of atexit, and
    would look as if it had been killed. It forgets what its parent has registered.
    """
    atexit.register(_end_threads)  # after the next one: the last comes first
    atexit.register(finish_or_drop)
    _leave_with_multiprocessing()
    util.register_after_fork(finish_or_drop, _leave_with_multiprocessing)
