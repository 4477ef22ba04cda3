"""The findings of all processes that a command starts, through files in one folder.

Each process that uses the device has a file there, of pickled entries. The first one
says who the process is. Each finding is added when it is made, so that a process which
is killed loses none. A tuple of all of them says that the process has ended by itself.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from npu_dispatch.observe.segment.system import lives, pid_namespace, process_start
from npu_dispatch.sanitizer import Report

_SUFFIX = ".findings"


@dataclass(frozen=True, slots=True)
class Process:
    """A process that used the device under `npu-dispatch sanitize`."""

    pid: int
    start: int
    namespace: int
    command: tuple[str, ...]
    rank: int | None
    reports: tuple[Report, ...] = ()
    ended: bool = False  # and all that it found is known

    def lives(self) -> bool | None:
        """Return whether it runs still; None where that cannot be told."""
        return lives(self.pid, self.start, self.namespace)


class Findings:
    """This process's file, which is opened by name each time."""

    def __init__(self, folder: Path, rank: int | None) -> None:
        self._lost = False  # something could not be written
        pid = os.getpid()
        file, name = tempfile.mkstemp(_SUFFIX, f"{pid}-", folder)
        os.close(file)
        self._path = Path(name)
        start = process_start(pid)
        self._put(Process(pid, start, pid_namespace(), tuple(sys.argv), rank))

    def add(self, report: Report) -> None:
        """Note a finding that was not made before."""
        self._put(report)

    def end(self, counted: Sequence[Report]) -> None:
        """Say that this process ends by itself; `counted` are its findings so far."""
        if not self._lost:
            self._put(tuple(counted))

    def _put(self, entry: object) -> None:
        # One write, so that the entries of two threads do not mix.
        data = pickle.dumps(entry)
        try:
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                self._lost |= os.write(file, data) != len(data)
            finally:
                os.close(file)
        except OSError:  # no room, or the folder is gone: the program goes on
            self._lost = True


def read_all(folder: Path) -> list[Process]:
    """Return the processes that used the device, in the order of their numbers."""
    found = [_read(path) for path in sorted(folder.glob(f"*{_SUFFIX}"))]
    return sorted((one for one in found if one), key=lambda one: one.pid)


def _read(path: Path) -> Process | None:
    entries = list(_entries(path))
    if not entries:  # it was killed before it had used the device
        return None
    process: Process = entries[0]
    reports: dict[object, Report] = {}
    ended = False
    for entry in entries[1:]:
        ended = ended or isinstance(entry, tuple)
        for report in entry if isinstance(entry, tuple) else (entry,):
            reports[report.key] = report
    return replace(process, reports=tuple(reports.values()), ended=ended)


def _entries(path: Path) -> Iterator[Any]:
    # The last entry of a process that was killed may be a part of one.
    with (
        path.open("rb") as file,
        contextlib.suppress(EOFError, pickle.UnpicklingError),
    ):
        while True:
            yield pickle.load(file)
