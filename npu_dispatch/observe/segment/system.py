"""What the kernel says of processes and threads, and moments as dates.

/proc/PID/stat is read here and not by psutil, whose moment of a process's start moves
when somebody sets the clock. Its import takes 20 ms, too, a third of what `npu-dispatch
ps` needs.

Readings carry the machine's monotonic time, which no administrator and no time
server can step. A date is made of one only where people or Prometheus see it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

# proc(5) counts from 1. The command, field 2, may hold spaces and parentheses,
# so fields are counted from behind its last ')': field 3 is the first.
_STATE, _START, _STACK = 0, 19, 25
_ENDED = (b"", b"Z", b"X")
# Both clocks are slewed alike, so the offset changes only when the date is set or
# the machine was suspended. Anything smaller is the error of reading one after the
# other, and must not move: a moment that has not changed has one date.
_LEAST_STEP_NS = 1_000_000
_TRIES = 3
_known_ns: int | None = None


def stat_fields(pid: int, thread: int | None = None) -> list[bytes]:
    """Return fields 3 and on of a process, or of one thread; [] if it is gone.

    Raises OSError where that cannot be told, as by a reader out of descriptors.
    """
    where = f"/proc/{pid}/stat" if thread is None else f"/proc/{pid}/task/{thread}/stat"
    try:
        # Path would take three times as long, and there may be hundreds of them.
        with open(where, "rb", 0) as stat:  # noqa: PTH123
            return stat.read(1024).rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _state(pid: int) -> bytes | None:
    """Return the letter of a process's state; b"" of none, None where it is unknown."""
    try:
        fields = stat_fields(pid)
    except OSError:
        return None
    return fields[_STATE] if fields else b""


def core_wait_ns(pid: int, thread: int) -> int | None:
    """Return how long a thread was ready to run and had no core; None: not known."""
    try:
        text = Path(f"/proc/{pid}/task/{thread}/schedstat").read_text()
        return int(text.split()[1])  # proc(5): running, waiting, how often
    except (OSError, ValueError, IndexError):
        return None


def has_ended(pid: int) -> bool:
    """Return whether a process is known to be gone, or a zombie, without memory."""
    return _state(pid) in _ENDED


def is_stopped(pid: int) -> bool:
    """Return whether a signal or a debugger has stopped a process."""
    return _state(pid) in (b"T", b"t")


def process_start(pid: int) -> int:
    """Return when a process started, in clock ticks since boot; 0 if it ended.

    Raises OSError where that cannot be told.
    """
    fields = stat_fields(pid)
    if not fields or fields[_STATE] in _ENDED:
        return 0
    return int(fields[_START])


def stack_start(pid: int) -> int:
    """Return where a process's stack begins, which execve() changes.

    0 where that cannot be told, as of another user's process.
    """
    try:
        fields = stat_fields(pid)
    except OSError:
        return 0
    return int(fields[_STACK]) if len(fields) > _STACK else 0


def pid_namespace() -> int:
    """Return this process's namespace of process numbers; 0 if that is not known.

    It is not known where /proc is that of another namespace: its entries are then of
    other processes than the numbers of this one name.
    """
    try:
        if str(Path("/proc/self").readlink()) != str(os.getpid()):
            return 0
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def is_here(namespace: int) -> bool:
    """Return whether numbers of that namespace name the processes of this one."""
    return namespace != 0 and namespace == pid_namespace()


def lives(pid: int, start: int, namespace: int) -> bool | None:
    """Return whether the process of that number and start lives.

    None: it is in another namespace, or /proc cannot be read.
    """
    if not is_here(namespace):
        return None
    try:
        return process_start(pid) == start
    except OSError:
        return None


def _read_offset_ns() -> tuple[int, int]:
    """Return by how much a reading may be wrong, and the offset that it gives."""
    before, date, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
    return after - before, date - (before + after) // 2


def unix_offset_ns() -> int:
    """Return what to add to a moment of CLOCK_MONOTONIC for one since 1970.

    It is the same at each call until the date is set or the machine was suspended.
    """
    global _known_ns
    # The thread may be stopped in the middle of a reading: the shortest one counts.
    _, now = min(_read_offset_ns() for _ in range(_TRIES))
    if _known_ns is None or abs(now - _known_ns) >= _LEAST_STEP_NS:
        _known_ns = now
    return _known_ns


def unix_ns(monotonic_ns: int) -> int:
    """Return a moment of CLOCK_MONOTONIC in nanoseconds since 1970, as of today.

    Before the last suspend of the machine it is too late by how long that took.
    """
    return unix_offset_ns() + monotonic_ns
