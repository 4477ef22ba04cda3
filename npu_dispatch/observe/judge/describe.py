"""What a process's streams and host threads do, or did when it was killed, in lines.

No code runs when a process is killed, so all of this was in its segment before. The
last task of a stream is the one that was running. After a SIGSEGV in a kernel it
therefore names the operator and the line that launched it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from npu_dispatch.observe.judge import verdict
from npu_dispatch.observe.segment import StatsError, StatsReader
from npu_dispatch.observe.segment.folders import remains
from npu_dispatch.observe.segment.listing import Processes, ProcessView, user_name
from npu_dispatch.observe.segment.system import unix_ns
from npu_dispatch.observe.segment.values import OpenWait, StreamStats, picked
from npu_dispatch.words import age, counted, mib, stream_title

_NOTABLE_S = 1.0
_LATELY_S = 600.0  # for which killed processes are shown
_UNREADABLE = (OSError, StatsError, ValueError)


def _stream_line(s: StreamStats, queued_for: str = "") -> str:
    """Say what a stream does; `queued_for`: since when, where it has work."""
    title, does = stream_title(s.device, s.stream), verdict.doing(s)
    if s.state == "failed" or (not s.depth and s.held_by is None):
        return f"{title}: {does}"
    at = f", launched at {s.running_at}" if s.running_at else ""
    return f"{title}: task {s.retired} {does}{at}; {s.depth} queued{queued_for}"


def _wait_line(wait: OpenWait, pid: int) -> str:
    """Say which host thread of process `pid` waits for what, and at which line."""
    main = " (main)" if wait.thread == pid else ""
    at = f", at {wait.at}" if wait.at else ""
    return (
        f"host thread {wait.thread}{main} waits for "
        f"{stream_title(wait.device, wait.stream)} up to task {wait.until - 1}, "
        f"reason {wait.reason}{at}"
    )


def dump_lines(view: ProcessView) -> Iterator[str]:
    """Yield a line for each stream, waiting host thread and circle of waits."""
    name = view.info.name
    yield f"process {view.info.pid}" + (f", {name}:" if name else ":")
    for stream in view.streams:
        queued_s = view.tick - (stream.oldest_queued or view.tick)
        yield f"  {_stream_line(stream.stats, f', the oldest for {queued_s:.1f} s')}"
    for wait in view.host_waits:
        yield f"  {_wait_line(wait, view.info.pid)}; for {wait.ns / 1e9:.1f} s"
    if view.quiet_since is not None and view.last_task is not None:
        yield f"  {verdict.quiet_for(view)}"
        yield f"  {verdict.ask_python(view)}"
    waiting = sum(sum(device.waiting.values()) for device in view.devices)
    waiting += sum(stream.stats.full_waiting for stream in view.streams)
    if (more := waiting - len(view.host_waits)) > 0:
        yield f"  waiting, too: {counted(more, 'host thread')}"
    for circle in verdict.cycles(verdict.waits_for(view)):
        names = " -> ".join(stream_title(*key) for key in [*circle, circle[0]])
        yield f"  streams wait in a circle: {names}"


def _left_in(processes: Processes) -> list[Path]:
    return [path for folder in processes.folders() for path in remains(folder)]


def dead(pid: int | None = None) -> list[Path]:
    """Return the segments of this user's killed processes, the newest first.

    With `pid`, only of the processes of that number.
    """
    with Processes(pid=pid) as processes:
        processes.refresh()  # renames those that no reader has found dead yet
        left = _left_in(processes)
    found = []
    for path in left:
        with contextlib.suppress(*_UNREADABLE), StatsReader(path) as reader:
            if pid in (None, reader.info.pid):
                found.append(path)
    return found


def _clock(unix_ns: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix_ns / 1e9))


def _moved_ns(stream: StreamStats) -> int:
    return max(stream.last_retired_ns, stream.woken_ns)


def last_line(reader: StatsReader) -> str:
    """Return the Python line that a dead process was at; "" when not known."""
    streams = reader.streams()
    lines = [wait.at for wait in reader.open_waits()]
    lines += [s.running_at for s in streams if s.depth]
    lines += [
        task.at for s in streams for task in reader.recent(s.device, s.stream)[-1:]
    ]
    return next(filter(None, lines), "")


class Killed:
    """The processes that were killed lately, told from the segments that they left.

    It remembers each, because its file is read once and may go away.
    """

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._known: dict[tuple[str, int], dict[str, Any] | None] = {}

    def look(self) -> list[dict[str, Any]]:
        """Return those of the last ten minutes, the newest first."""
        there = set()
        for path in _left_in(self._processes):
            try:
                status = path.lstat()
            except OSError:
                continue
            key = path.name, status.st_ino
            there.add(key)
            if key not in self._known:
                age = max(0.0, time.time() - status.st_mtime)
                self._known[key] = self._read(path, age, status.st_uid)
        oldest = time.monotonic() - _LATELY_S
        known = self._known.items()
        late = {key: one for key, one in known if one and one["tick"] > oldest}
        # Files that are there are not read again, although they are of no use.
        self._known = dict.fromkeys(there) | late
        return sorted(late.values(), reverse=True, key=lambda one: one["tick"])

    def _read(self, path: Path, age: float, uid: int) -> dict[str, Any] | None:
        try:
            with StatsReader(path) as reader:
                info = reader.info
                at = last_line(reader)
        except _UNREADABLE:
            return None
        if self._processes.pid not in (None, info.pid):
            return None
        tick = time.monotonic() - age
        return {
            **picked(info, "pid name rank job_id"),
            "user": user_name(uid),
            "time": unix_ns(int(tick * 1e9)) / 1e9,
            "tick": tick,  # at which somebody found it dead
            "at": at,
        }


def postmortem_lines(reader: StatsReader, tasks: int = 8) -> Iterator[str]:
    """Yield what a dead process's streams and host threads did at its end.

    `tasks`: how many of each stream's last ones to show.
    """
    info, streams, waits = reader.info, reader.streams(), reader.open_waits()
    text = f"process {info.pid}, {info.name}"
    if info.rank:
        text += f", rank {info.rank} of {info.world_size or '?'}"
    if info.job_id:
        text += f", job {info.job_id}"
    text += f", killed; began {_clock(info.realtime_ns)}"
    # The latest moment that the segment tells of: how long the process lived after it
    # is not known.
    moments = [*map(_moved_ns, streams), *(wait.since_ns for wait in waits)]
    last = max(moments, default=0)
    if last:
        text += f", last noted {_clock(unix_ns(last))}"
    line = last_line(reader)
    yield f"{text} at {line}" if line else text
    for device in reader.devices():
        yield (
            f"  npu:{device.device}: {mib(device.allocated)} allocated, "
            f"{mib(device.reserved)} reserved, at most {mib(device.allocated_peak)}; "
            f"{device.ooms} out of memory"
        )
    for stream in streams:
        moved, still = _moved_ns(stream), ""
        if moved and (last - moved) / 1e9 >= _NOTABLE_S:
            still = f", no progress for {age((last - moved) / 1e9)} or more"
        yield f"  {_stream_line(stream, still)}"
        for task in reader.recent(stream.device, stream.stream)[-tasks:]:
            outcome = task.outcome
            if outcome == "begun":
                outcome = "done" if task.task < stream.retired else "not finished"
            at = f", launched at {task.at}" if task.at else ""
            yield f"    task {task.task}: {task.op or 'a task'}{at}: {outcome}"
    for wait in waits:
        yield f"  {_wait_line(wait, info.pid)}"
    if not streams:
        yield "  it had launched nothing"
