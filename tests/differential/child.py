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


class Child:
    """A call under way in a child."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._reads, writes = os.pipe()
        sys.stdout.flush()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._reads)
            _answer(writes, function, arguments)
        os.close(writes)

    def fileno(self) -> int:
        """Return what select() finds readable when the child is done."""
        return self._reads

    def answer(self, seconds: float) -> Any:
        """Return what the function returned, or how the child died; call it once."""
        try:
            answer = _read(self._reads, time.monotonic() + seconds)
        finally:
            os.close(self._reads)
        if answer is None:
            os.kill(self._pid, signal.SIGKILL)
        _, status = os.waitpid(self._pid, 0)
        if answer is None:
            return Died(f"no answer within {seconds:g} s")
        if not answer:
            signalled = os.WIFSIGNALED(status)
            return Died(f"signal {os.WTERMSIG(status)}" if signalled else "exited")
        return pickle.loads(answer)


def call(function: Callable[..., Any], *arguments: Any, seconds: float = 120) -> Any:
    """Return what the function returns in a child, or how the child died."""
    return Child(function, *arguments).answer(seconds)


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
