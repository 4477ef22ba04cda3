"""How a benchmark starts more processes: of its own file, and busy ones beside it.

Those of its own file are interpreters of their own, as nothing that was measured
before may be in them. A smoke run, which measures nothing, forks them: they have
imported torch already.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from typing import NoReturn, Protocol, TextIO

from _harness import Effort


class Started(Protocol):
    """What both ways give: its pipes, and its status when it has ended."""

    stdin: TextIO
    stdout: TextIO

    def wait(self) -> int: ...


class Forked:
    """A copy of this process that runs its file from the start."""

    def __init__(self, arguments: tuple[str, ...]) -> None:
        read, write = os.pipe()
        answers, answer = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.dup2(read, 0)
            os.dup2(answer, 1)
            for end in (read, write, answers, answer):
                os.close(end)
            _run(arguments)
        os.close(read)
        os.close(answer)
        self.stdin, self.stdout = os.fdopen(write, "w"), os.fdopen(answers)

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])


def _run(arguments: tuple[str, ...]) -> NoReturn:
    sys.argv[1:] = arguments
    runpy.run_path(sys.argv[0], run_name="__main__")
    sys.exit()


def start(effort: Effort, *arguments: str, before: tuple[str, ...] = ()) -> Started:
    """Run this file with the arguments, after a command that runs others; device and
    threads are not in use yet.

    A forked one leaves all contexts that are open here when it ends.
    """
    if effort is Effort.SMOKE:
        return Forked(arguments)
    return subprocess.Popen(  # type: ignore[return-value]
        [*before, sys.executable, sys.argv[0], *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def end(*processes: Started) -> bool:
    """Let them end, and return whether all ended well."""
    for process in processes:  # first: a forked one has the pipes of those before it
        process.stdin.close()
    statuses = [process.wait() for process in processes]
    return not any(statuses)


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
