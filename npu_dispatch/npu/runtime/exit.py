"""The end of a process: what is queued is done first, unless Ctrl-C drops it."""

from __future__ import annotations

import sys

from npu_dispatch import _C

__all__: list[str] = []


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
