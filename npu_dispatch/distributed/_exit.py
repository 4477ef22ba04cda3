"""The end of a program that has failed: others are told, and nobody waited for.

At its end a process does what is queued. A collective that is queued waits for
other ranks, which wait for this one, or go on for hours: a program that has
failed gives it up. That is one that ends with an exception, or with an exit code
other than 0.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from typing import Any, NoReturn

from npu_dispatch import _C

__all__ = ["give_up_when_failed"]


def give_up_when_failed() -> None:
    """See to the end of this program, from now on. Called for each group.

    Functions for the end run in reverse order, so this one runs before the queues
    are waited for.
    """
    global _pid
    _pid = os.getpid()
    _C.watch_exit()
    # Before 3.12 sys.exit() makes no exception, as long as nobody looks at it, but
    # hands the interpreter a number.
    if sys.version_info < (3, 12) and sys.exit is _plain_exit:
        sys.exit = _exit
    atexit.unregister(_give_up)
    atexit.register(_give_up)


_pid = 0
_plain_exit = sys.exit


def _exit(status: Any = None, /) -> NoReturn:
    """Exit the interpreter by raising SystemExit(status); see Python's sys.exit."""
    raise SystemExit(*status) if isinstance(status, tuple) else SystemExit(status)


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
    if code := _C.exit_code():
        return f"its program ended with exit code {code & 0xFF}"
    error = getattr(sys, "last_value", None)
    if error is None:
        return ""
    return f"its program failed with {type(error).__name__}: {error}"
