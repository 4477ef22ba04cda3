"""Cases in children, with limits: one that dies or hangs ends nobody else.

Children are commands, or forks. The parent of a fork has torch imported, has not used
the device and has not computed with several threads, so that the child begins as a
program does, in milliseconds.
"""

import contextlib
import faulthandler
import functools
import gc
import os
import pickle
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing import Pipe, connection
from pathlib import Path
from typing import Any

from tests.search.report import ROOT

# Cases until a child of work_through() is replaced: no history grows without bound.
LIFETIME = 80


@dataclass(frozen=True)
class Died:
    """A child that gave no answer: why, and the end of what it printed."""

    why: str
    said: str = ""
    hangs: bool = False

    def __str__(self) -> str:
        return f"{self.why}\n{self.said}".strip()


class Line:
    """One end of what a child and its parent say to each other.

    By plain pickles: multiprocessing's own would send tensors as shared memory.
    """

    def __init__(self, ends: connection.Connection) -> None:
        self._ends = ends

    def fileno(self) -> int:
        return self._ends.fileno()

    def say(self, message: Any) -> None:
        self._ends.send_bytes(pickle.dumps(message))

    def hear(self, seconds: float | None = None) -> Any:
        """Return the next message; EOFError for none, TimeoutError for none in time."""
        try:
            if not self._ends.poll(seconds):
                raise TimeoutError
            return pickle.loads(self._ends.recv_bytes())
        except ConnectionError:
            raise EOFError from None

    def close(self) -> None:
        self._ends.close()


class Child:
    """A function of a Line under way in a forked process."""

    def __init__(self, function: Callable[[Line], None], *, leaves: bool = False):
        """With `leaves` it ends as a program does, with all that happens at exit."""
        ours, theirs = map(Line, Pipe())
        self.line = ours
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - end() closes it
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            ours.close()
            status = self._work(function, theirs)
            if leaves and status == 0:
                sys.exit(0)
            os._exit(status)
        theirs.close()
        self._pidfd = os.pidfd_open(self.pid)

    def _work(self, function: Callable[[Line], None], line: Line) -> int:
        for number in (1, 2):
            os.dup2(self._output.fileno(), number)
        faulthandler.enable()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            function(line)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            return 1
        line.close()
        return 0

    def fileno(self) -> int:
        """Return what select() finds readable when it says something, or has ended."""
        return self.line.fileno()

    def _ends_within(self, seconds: float) -> bool:
        return bool(select.select([self._pidfd], [], [], max(seconds, 0))[0])

    def end(self, seconds: float, *, debugger: bool = False) -> Died | None:
        """Wait for its end, or make one; return how it died if it did.

        `debugger`: gdb says where the threads of one that hangs are, where it is there.
        """
        hangs = not self._ends_within(seconds)
        stacks = _stacks(self.pid) if hangs and debugger else ""
        if hangs:
            os.kill(self.pid, signal.SIGABRT)  # faulthandler says where its threads are
            if not self._ends_within(20):
                os.kill(self.pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self._pidfd)
        self.line.close()
        with self._output as output:
            output.seek(0)
            said = output.read().decode(errors="replace").strip()
        if hangs:
            return Died("does not end", stacks + said[:3000], True)
        how = signal.Signals(-code).name if code < 0 else f"status {code}"
        return Died(f"ended with {how}", said[-2000:]) if code else None

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.end(60)


def _stacks(pid: int) -> str:
    if not (gdb := shutil.which("gdb")):
        return ""
    show = ("-batch", "-ex", "thread apply all -ascending bt 16")
    done = subprocess.run([gdb, "-p", str(pid), *show], capture_output=True, text=True)
    lines = [x for x in done.stdout.splitlines() if x.startswith(("#", "Thread"))]
    return "\n".join(lines)[:6000]


def call(
    function: Callable[..., Any],
    *arguments: Any,
    seconds: float = 120,
    leaves: bool = False,
    debugger: bool = False,
    while_it_runs: Callable[[int], None] | None = None,
) -> Any:
    """Return what the function returns in a child, or how the child died.

    `while_it_runs` is called here with the child's number, and may do something to it.
    """
    child = Child(lambda line: line.say(function(*arguments)), leaves=leaves)
    if while_it_runs:
        while_it_runs(child.pid)
    until = time.monotonic() + seconds
    answer: Any = Died("said nothing")
    with contextlib.suppress(EOFError, TimeoutError):
        answer = child.line.hear(seconds)
    died = child.end(until - time.monotonic(), debugger=debugger)
    if died and died.hangs:
        return replace(died, why=f"no end within {seconds:g} s")
    return died or answer


def run(
    command: Sequence[str | Path],
    seconds: float | None,
    *,
    cwd: Path = ROOT,
    **env: str,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; what it leaves running ends with it.

    TimeoutExpired where that takes longer. Its output goes to files: a pipe would stay
    open in what it leaves.
    """
    file = functools.partial(tempfile.TemporaryFile, "w+", errors="replace")
    with file() as out, file() as err:
        child = subprocess.Popen(
            command,
            cwd=cwd,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            code = child.wait(seconds)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(command, code, out.read(), err.read())


def run_module(
    name: str, *arguments: str | Path, seconds: float = 900, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a module of this tree in an interpreter of its own."""
    command = [sys.executable, "-m", name, *arguments]
    return run(command, seconds, PYTHONPATH=str(ROOT), **env)


# What is done with a name; it may report where it is.
Work = Callable[[Any, Callable[[str], None]], Any]


class _Worker:
    """A child that works on one name after the other."""

    def __init__(self, work: Work) -> None:
        def serve(line: Line) -> None:
            for name in iter(line.hear, None):
                line.say((True, work(name, lambda at: line.say((False, at)))))

        self.child, self.worked_on = Child(serve), 0

    def fileno(self) -> int:
        return self.child.fileno()

    def give(self, name: Any) -> None:
        self.name, self.at, self.since = name, "", time.monotonic()
        self.worked_on += 1
        with contextlib.suppress(OSError):  # it has died: answer() says how
            self.child.line.say(name)

    def answer(self, limit: float) -> Any:
        """Return (answer,) when there is one; how it died, if it did; else None."""
        try:
            while True:
                is_answer, what = self.child.line.hear(0)
                if is_answer:
                    return (what,)
                self.at = what
        except TimeoutError:
            if time.monotonic() - self.since <= limit:
                return None
            died = self.child.end(0)
            why = f"no end within {limit:g} s"
        except EOFError:
            died = self.child.end(60)
            why = died.why if died else "ended"
        return replace(died or Died(why), why=f"{why}; at {self.at}")


def work_through(
    names: Iterable[Any], work: Work, jobs: int, limit: float, lifetime: int = LIFETIME
) -> Iterator[tuple[Any, Any]]:
    """Yield (name, work(name)) in any order; a Died where a child gave no answer.

    Names are asked for when a child is free. `limit`: seconds for one of them.
    """
    left = iter(names)
    nothing = object()
    workers: list[_Worker] = []
    gc.collect()
    gc.freeze()
    try:
        while True:
            while len(workers) < jobs and (name := next(left, nothing)) is not nothing:
                workers.append(_Worker(work))
                workers[-1].give(name)
            if not workers:
                return
            connection.wait(workers, timeout=1)
            for worker in list(workers):
                if (found := worker.answer(limit)) is None:
                    continue
                done, name = worker.name, nothing
                if isinstance(found, Died):
                    workers.remove(worker)
                elif (
                    worker.worked_on >= lifetime
                    or (name := next(left, nothing)) is nothing
                ):
                    _dismiss(worker, workers)
                else:
                    worker.give(name)
                yield done, found if isinstance(found, Died) else found[0]
    finally:
        for worker in workers:
            worker.child.kill()
        gc.unfreeze()


def _dismiss(worker: _Worker, workers: list[_Worker]) -> None:
    workers.remove(worker)
    with contextlib.suppress(OSError):
        worker.child.line.say(None)
    worker.child.end(5)
