"""Processes beside a benchmark's own: those that measure for it, and busy ones."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from _harness import Effort


def start(
    effort: Effort, target: Callable[..., object], *arguments: Any
) -> tuple[BaseProcess, Connection]:
    """Run `target` with a connection and the arguments; return the process and its
    other end.

    It is an interpreter of its own, as nothing that was measured before may be in it. A
    smoke run, which measures nothing, forks: this one has imported torch already.
    """
    context = get_context("fork" if effort is Effort.SMOKE else "spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs, *arguments))
    process.start()
    theirs.close()
    return process, ours


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """Let so many processes compute beside, each of which keeps a core busy."""
    command = [sys.executable, "-c", "print(flush=True)\nwhile True: pass"]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(count)]
    try:
        for process in running:
            assert process.stdout is not None
            process.stdout.readline()
        yield
    finally:
        for process in running:
            process.kill()
            process.communicate()
