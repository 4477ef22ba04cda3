"""Calls a function in a forked child: in a process without a past.

The parent has torch imported but has never used the device, nor computed with
several threads, so that a child starts in milliseconds and can do both.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Died:
    """A child that gave no answer, and why."""

    why: str


def call(function: Callable[..., Any], *arguments: Any, seconds: float = 120) -> Any:
    """Return what the function returns in a child, or how the child died."""
    reads, writes = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.close(reads)
        _answer(writes, function, arguments)
    os.close(writes)
    try:
        answer = _read(reads, time.monotonic() + seconds)
    finally:
        os.close(reads)
    if answer is None:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if answer is None:
        return Died(f"no answer within {seconds:g} s")
    if not answer:
        signalled = os.WIFSIGNALED(status)
        return Died(f"signal {os.WTERMSIG(status)}" if signalled else "exited")
    return pickle.loads(answer)


def _answer(pipe: int, function: Callable[..., Any], arguments: Any) -> None:
    """Send the answer and end the process, without the exits of its libraries."""
    try:
        answer = pickle.dumps(function(*arguments))
    except BaseException:
        answer = pickle.dumps(Died(traceback.format_exc()))
    with open(pipe, "wb") as file:
        file.write(answer)
    os._exit(0)


def _read(pipe: int, deadline: float) -> bytes | None:
    """Read to the end; None when that takes too long."""
    parts = []
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([pipe], [], [], left)[0]:
            return None
        if not (part := os.read(pipe, 1 << 16)):
            return b"".join(parts)
        parts.append(part)
