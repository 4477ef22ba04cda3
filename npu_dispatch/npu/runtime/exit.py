"""The end of a process: what is queued is done first, unless Ctrl-C drops it."""

from __future__ import annotations

import atexit
import sys
from multiprocessing import parent_process, util

from npu_dispatch import _C

__all__: list[str] = []

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


def register() -> None:
    """Have the process leave in order.

    A child of multiprocessing ends by os._exit(), which calls nothing of atexit, and
    would look as if it had been killed. It forgets what its parent has registered.
    """
    atexit.register(finish_or_drop)
    _leave_with_multiprocessing()
    util.register_after_fork(finish_or_drop, _leave_with_multiprocessing)
