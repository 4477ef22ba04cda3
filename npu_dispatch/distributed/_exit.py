"""The end of a program that has failed: others are told, and nobody waited for.

At its end a process does what is queued. A collective that is queued waits for
other ranks, which wait for this one, or go on for hours: a program that has
failed gives it up. That is one that ends with an exception, or by sys.exit() with a
code other than 0. Other ways to such a code, such as `raise SystemExit(1)`, tell the
other ranks only once this program's queues are empty.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from typing import Any, NoReturn

from npu_dispatch import _C


def give_up_when_failed() -> None:
    """See to the end of this program, from now on. Called for each group.

    Functions for the end run in reverse order, so this one runs before the queues
    are waited for.
    """
    global _pid
    _pid = os.getpid()
    _C.tell_job_at_exit()
    if sys.exit is _plain_exit:
        sys.exit = _exit
    atexit.unregister(_give_up)
    atexit.register(_give_up)


_pid = 0
_code = 0
_plain_exit = sys.exit


class _Exit(SystemExit):
    """What sys.exit() raises. The interpreter deletes the one that nobody catches, with
    no function running, before it calls the functions for the end."""

    def __del__(self) -> None:
        global _code
        main = threading.current_thread() is threading.main_thread()
        if main and sys._getframe().f_back is None:
            text = not isinstance(self.code, int | None)  # is printed
            _code = 1 if text else int(self.code or 0) & 0xFF


def _exit(status: Any = None, /) -> NoReturn:
    """Exit the interpreter by raising SystemExit(status); see Python's sys.exit."""
    raise _Exit(*status) if isinstance(status, tuple) else _Exit(status)


def _give_up() -> None:
    failure = _failure()
    # A forked child ends as it likes: the groups are its parent's.
    if not failure or os.getpid() != _pid:
        return
    _C.fail_job(failure)
    import torch
    from torch.distributed import distributed_c10d as dc

    # torch's own list: it keeps the groups, and not the objects that Python had
    # of their backends, which may be gone. A job of gloo and groups of hccl has no
    # failure channel.
    for group in list(dc._world.pg_map):
        with contextlib.suppress(RuntimeError):  # of gloo alone
            backend = group._get_backend(torch.device("npu"))
            getattr(backend, "wrapped_pg", backend).abort()


def _failure() -> str:
    if _code:
        return f"its program ended with exit code {_code}"
    # At a prompt it is of any line before, and the user ends the program.
    at_prompt = hasattr(sys, "ps1")
    error = None if at_prompt else getattr(sys, "last_value", None)
    if error is None:
        return ""
    return f"its program failed with {type(error).__name__}: {error}"
