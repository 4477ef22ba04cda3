"""Processes that work on operators, and survive none that crashes or hangs.

Workers are forked from a process that has torch imported and the device not
yet initialised, so one that replaces another is there at once.
"""

from __future__ import annotations

import gc
import mmap
import multiprocessing
import os
import signal
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from typing import IO, Any

# What a worker does with the name of an operator; may report where it is.
Work = Callable[[str, Callable[[str], None]], Any]

_FORK = multiprocessing.get_context("fork")
_PROGRESS_BYTES = 256
# Operators until a worker is replaced: no history grows without bound.
_LIFETIME = 80


@dataclass
class Crash:
    """A worker that died or was killed at its work."""

    reason: str
    seconds: float


@dataclass
class _Worker:
    process: BaseProcess
    channel: connection.Connection
    progress: mmap.mmap
    output: IO[bytes]
    name: str = ""
    since: float = 0.0
    done: int = field(default=0)

    def told(self) -> str:
        """Return where it was, and the end of what it printed."""
        at = self.progress[:].rstrip(b"\0").decode(errors="replace")
        self.output.seek(0)
        printed = self.output.read()[-2000:].decode(errors="replace").strip()
        return f"{at}\n{printed}".strip()


def work_through(
    names: Iterable[str], work: Work, jobs: int, limit: float
) -> Iterator[tuple[str, Any | Crash]]:
    """Yield (name, work(name)) of each in any order; a Crash where there is none.

    limit: seconds for one name.
    """
    waiting = deque(names)
    workers: list[_Worker] = []
    gc.collect()
    gc.freeze()
    try:
        while waiting or any(w.name for w in workers):
            while waiting and len(workers) < jobs:
                workers.append(_start(work))
            for worker in workers:
                if waiting and not worker.name:
                    _give(worker, waiting.popleft())
            for worker in _heard_of(workers):
                name, answer = worker.name, _answer(worker, limit)
                if answer is None:
                    continue
                yield name, answer
                worker.name, worker.done = "", worker.done + 1
                if isinstance(answer, Crash) or worker.done >= _LIFETIME:
                    workers.remove(worker)
                    _end(worker)
    finally:
        for worker in workers:
            _end(worker)
        gc.unfreeze()


def _start(work: Work) -> _Worker:
    ours, theirs = _FORK.Pipe()
    progress = mmap.mmap(-1, _PROGRESS_BYTES)
    output = tempfile.TemporaryFile()  # noqa: SIM115 - _end closes it

    def report(text: str) -> None:
        progress[:] = text.encode()[:_PROGRESS_BYTES].ljust(_PROGRESS_BYTES, b"\0")

    def serve() -> None:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        while name := theirs.recv():
            report("")
            theirs.send(work(name, report))

    process = _FORK.Process(target=serve, daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours, progress, output)


def _give(worker: _Worker, name: str) -> None:
    worker.name, worker.since = name, time.monotonic()
    worker.channel.send(name)


def _heard_of(workers: list[_Worker]) -> list[_Worker]:
    """Return the busy workers after the next answer, death or second."""
    busy = [w for w in workers if w.name]
    connection.wait(
        [w.channel for w in busy] + [w.process.sentinel for w in busy], timeout=1
    )
    return busy


def _answer(worker: _Worker, limit: float) -> Any | Crash | None:
    """Return what a busy worker has to say, None when it is still at it."""
    seconds = round(time.monotonic() - worker.since, 1)
    alive = worker.process.is_alive()
    try:
        # What a worker sent before it died still lies in the channel.
        if worker.channel.poll():
            return worker.channel.recv()
    except (EOFError, ConnectionError):
        alive = False
    if not alive:
        worker.process.join()
        code = worker.process.exitcode or 0
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        return Crash(f"worker died: {how}; at {worker.told()}", seconds)
    if seconds > limit:
        worker.process.kill()
        worker.process.join()
        return Crash(f"no end within {limit:g} s; at {worker.told()}", seconds)
    return None


def _end(worker: _Worker) -> None:
    if not worker.name:
        try:
            worker.channel.send("")
            worker.process.join(5)
        except OSError:
            pass  # it is dead already
    worker.process.kill()
    worker.process.join()
    worker.channel.close()
    worker.output.close()
    worker.progress.close()
