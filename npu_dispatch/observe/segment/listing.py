"""Which processes use the device, and what their counters say over time.

This reads segments only, so it works on a process that hangs, and imports no
torch. A process that died disappears with the next refresh, and its segment is
laid aside (folders.py).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import pwd
import time
from collections import deque
from pathlib import Path
from typing import NamedTuple

from npu_dispatch.observe.segment import (
    StatsError,
    StatsReader,
    collectives,
    folders,
    system,
    values,
)
from npu_dispatch.observe.segment.untrusted_file import Closed

_DEPTH_WINDOW_S = 60.0
_MAX_TOLD = 1000
_MOST_FILES = 4096  # of one folder
_QUIET_S = 5.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@functools.cache  # what was said once
def _warn(text: str) -> None:
    import logging  # which would be a tenth of what `npu-dispatch ps` imports

    logging.getLogger(__name__).warning("%s", text)


@functools.cache
def user_name(uid: int) -> str:
    """Return a user's name, or the number where the system has no name for it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _is_its_owners(reader: StatsReader) -> bool:
    """Return whether a living process runs as the user whose file tells of it."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{reader.info.pid}").stat().st_uid == reader.owner
    return False


def _thread_cpu_seconds(pid: int, thread: int) -> float | None:
    """Return a thread's time on a CPU; None when there is no such thread."""
    fields = system.stat_fields(pid, thread)
    if not fields:
        return None
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


class StreamView(NamedTuple):
    """One stream at one moment. Times are seconds of the monotonic clock."""

    stats: values.StreamStats
    depth_max: int  # the most seen in the last minute
    # Since when no task was done, to within the time between two refreshes; None where
    # none is queued.
    oldest_since: float | None
    # When the oldest task was queued, as far as one task in 16 tells.
    oldest_queued: float | None
    last_completion: float | None
    cpu_seconds: float | None
    core_wait_ns: int | None  # its launcher was ready to run and had no core
    thread_alive: float | None  # when the launcher was last seen; None: none yet

    @property
    def state(self) -> str:
        """Return idle, running, blocked_on_event, capturing or error."""
        if self.stats.state == "failed":
            return "error"
        if self.stats.capturing:
            return "capturing"
        if self.stats.held_by is not None:
            return "blocked_on_event"
        return "running" if self.stats.depth else "idle"


class ProcessView(NamedTuple):
    """One process at one moment, `tick` in seconds of the monotonic clock.

    `id` names it for as long as it lives, whoever reads: its number, and where that
    is one of another namespace, NUMBER-NAMESPACE.
    """

    id: str
    tick: float
    reader: StatsReader  # of its segment, also when the process has ended meanwhile
    info: values.SegmentInfo
    process: values.ProcessStats
    devices: tuple[values.DeviceStats, ...]
    streams: tuple[StreamView, ...]
    host_waits: tuple[values.OpenWait, ...]  # who waits longest first
    # The last moment at which a stream is known to have had a task; None while one
    # has, and in a process that has launched nothing.
    quiet_since: float | None = None
    # Of a process that has been quiet for seconds.
    last_task: values.RecentTask | None = None
    # Of the world, as the environment says, or else its first group; "": of none.
    rank: str = ""
    world_size: str = ""
    stopped: bool = False  # by a signal or a debugger
    # How long its collectives have waited for ranks that had not called, all together.
    waited_ns: int = 0
    totals: tuple[collectives.CollectiveTotal, ...] = ()  # of its collectives
    user: str = ""  # whose process it is


class _Progress:
    """What is remembered of a stream between two refreshes."""

    def __init__(self) -> None:
        self.retired = -1
        # A moment at which the stream had not yet retired that many tasks.
        self.before = 0.0
        self.depths: deque[tuple[float, int]] = deque()
        self.thread_alive: float | None = None

    def note(
        self, time_now: float, previous: float | None, stats: values.StreamStats
    ) -> None:
        if stats.retired != self.retired:
            self.before = previous or 0.0
            self.retired = stats.retired
        while self.depths and self.depths[0][0] < time_now - _DEPTH_WINDOW_S:
            self.depths.popleft()
        # The depths fall: an older one that is smaller can no longer be the most.
        while self.depths and self.depths[-1][1] <= stats.depth:
            self.depths.pop()
        self.depths.append((time_now, stats.depth))


class _Watched:
    """One process's open segment, and what is remembered of it."""

    def __init__(self, path: Path, any_user: bool) -> None:
        self.path = path
        self.reader = StatsReader(path, any_user=any_user)
        info = self.reader.info
        here = system.is_here(info.pid_namespace)
        self.id = f"{info.pid}" if here else f"{info.pid}-{info.pid_namespace}"
        self._progress: dict[tuple[int, int], _Progress] = {}
        self._previous: float | None = None

    def view(self) -> ProcessView:
        now = time.monotonic()
        info = self.reader.info
        streams = tuple(
            self._stream_view(info, stats, now) for stats in self.reader.streams()
        )
        quiet_since, last_task = self._quiet(streams, now)
        world = collectives.read_world(*self.reader.behind()) or ("", "")
        totals = tuple(collectives.read_totals(*self.reader.behind()))
        self._previous = now
        return ProcessView(
            id=self.id,
            tick=now,
            reader=self.reader,
            info=info,
            process=self.reader.process(),
            devices=tuple(self.reader.devices()),
            streams=streams,
            host_waits=tuple(self.reader.open_waits()),
            quiet_since=quiet_since,
            last_task=last_task,
            rank=info.rank or str(world[0]),
            world_size=info.world_size or str(world[1]),
            stopped=system.is_here(info.pid_namespace) and system.is_stopped(info.pid),
            waited_ns=sum(total.waited_ns for total in totals),
            totals=totals,
            user=user_name(self.reader.owner),
        )

    def _quiet(
        self, streams: tuple[StreamView, ...], now: float
    ) -> tuple[float | None, values.RecentTask | None]:
        used = [stream.stats for stream in streams if stream.stats.submitted]
        if not used or any(s.depth for s in used):
            return None, None

        def busy_at(s: values.StreamStats) -> float:
            told = max(s.last_retired_ns, s.woken_ns)
            return max(self._progress[s.device, s.stream].before, told / 1e9)

        last = max(used, key=busy_at)
        since = min(now, busy_at(last))
        if not since:
            return None, None
        if now - since < _QUIET_S:
            return since, None
        tasks = self.reader.recent(last.device, last.stream)
        return since, tasks[-1] if tasks else None

    def _stream_view(
        self, info: values.SegmentInfo, stats: values.StreamStats, now: float
    ) -> StreamView:
        progress = self._progress.setdefault((stats.device, stats.stream), _Progress())
        progress.note(now, self._previous, stats)
        oldest = oldest_queued = None
        if stats.depth:
            told = max(info.monotonic_ns, stats.last_retired_ns, stats.woken_ns)
            oldest = min(now, max(progress.before, told / 1e9))
            queued = max(info.monotonic_ns, stats.head_queued_ns, stats.woken_ns)
            oldest_queued = min(now, queued / 1e9)
        last = stats.last_retired_ns
        here = stats.thread and system.is_here(info.pid_namespace)
        cpu = _thread_cpu_seconds(info.pid, stats.thread) if here else None
        if cpu is not None:
            progress.thread_alive = now
        return StreamView(
            stats=stats,
            depth_max=progress.depths[0][1],
            oldest_since=oldest,
            oldest_queued=oldest_queued,
            # Sampled: a counter that moved since says more.
            last_completion=max(last / 1e9, progress.before) if last else None,
            cpu_seconds=cpu,
            core_wait_ns=system.core_wait_ns(info.pid, stats.thread) if here else None,
            thread_alive=progress.thread_alive,
        )


def _inode(path: Path) -> int | None:
    with contextlib.suppress(OSError):
        return path.stat().st_ino
    return None


def _how_ended(watched: _Watched) -> str:
    """Say how a process has ended and put its file away; "" where it has not.

    Another user's files are left alone.
    """
    path = watched.path
    if watched.reader.is_replaced():  # by another program
        with contextlib.suppress(OSError):
            # Which may have a file of that name by now.
            same = _inode(path) == watched.reader.inode
            if same and path.parent.stat().st_uid == os.geteuid():
                path.unlink()
        return "replaced"
    if watched.reader.lives() is False:
        folders.lay_aside(path)
        return "killed"
    return ""


class Processes(Closed):
    """The processes of this user that publish statistics, or one of them.

    With `all_users` they are those of every user whose folder this one may read.
    Call `refresh()` about once a second: figures about the last minute are exact
    only then. Several threads must not use one object at once.
    """

    def __init__(
        self,
        *,
        pid: int | None = None,
        directory: Path | None = None,
        all_users: bool = False,
    ):
        self.pid, self._directory, self._all_users = pid, directory, all_users
        for taken in folders.not_ours(folders.SEGMENTS) if directory is None else ():
            _warn(taken)
        self._watched: dict[Path, _Watched] = {}
        self.views: tuple[ProcessView, ...] = ()
        # Why files could not be read as a segment at the last refresh.
        self.unreadable: list[str] = []
        self._told: set[tuple[str, int]] = set()  # files that were warned of
        # Processes that were found dead and had not ended by themselves.
        self.killed = 0

    def refresh(self) -> tuple[ProcessView, ...]:
        """Read everything again; lay aside what dead processes left."""
        self._forget_the_dead()
        self._find_new()
        order = sorted(
            self._watched.values(), key=lambda w: (w.reader.info.pid, w.id, w.path)
        )
        # A number that names a process here means no other container's.
        here = [watched for watched in order if watched.id == str(self.pid)]
        views = []
        for watched in here or order:
            # A segment that is torn or forged must not hide those of other processes.
            try:
                views.append(watched.view())
            except Exception as error:
                self._give_up(watched, error)
        self.views = tuple(views)
        return self.views

    def _give_up(self, watched: _Watched, error: Exception) -> None:
        text = f"{watched.path}: cannot be read: {error!r}"
        self.unreadable.append(text)
        del self._watched[watched.path]
        key = watched.path.name, watched.reader.inode
        if key not in self._told:
            self._told = {*self._told, key} if len(self._told) < _MAX_TOLD else {key}
            _warn(text)

    def _forget_the_dead(self) -> None:
        for path, watched in list(self._watched.items()):
            inode = watched.reader.inode
            if _inode(path) == inode:
                how = _how_ended(watched)
            else:  # another reader has found it dead before, or it ended by itself
                how = "killed" if _inode(folders.aside(path)) == inode else "ended"
            self.killed += how == "killed"
            if how:
                del self._watched[path]

    def _find_new(self) -> None:
        self.unreadable = []
        for path in self._files():
            # PID, or PID-NAMESPACE where another container has that number.
            pid = path.name.partition("-")[0]
            if (
                path in self._watched
                or not pid.isdecimal()
                or path.name.endswith(folders.SUFFIX)
                or self.pid not in (None, int(pid))
            ):
                continue
            try:
                watched = _Watched(path, self._all_users)
            except (OSError, StatsError, ValueError) as error:
                why = str(error)
                self.unreadable.append(why if str(path) in why else f"{path}: {why}")
                continue
            if self._is_listed(watched, int(pid)):
                self._watched[path] = watched

    def _is_listed(self, watched: _Watched, pid: int) -> bool:
        reader = watched.reader
        here = system.is_here(reader.info.pid_namespace)
        theirs = self._all_users and here and reader.lives()
        if reader.info.pid != pid or (theirs and not _is_its_owners(reader)):
            # What one user says of another's process.
            text = f"{watched.path}: tells of process {reader.info.pid}, not its own"
            self.unreadable.append(text)
            return False
        if self.pid is not None and not here and "-" in watched.path.name:
            return False  # another container's process
        return not _how_ended(watched)  # it may have been dead for days

    def folders(self) -> list[Path]:
        """Return where the segments are. Some of the folders may be missing."""
        if self._directory is not None:
            return [self._directory]
        find = folders.all_folders if self._all_users else folders.own_folders
        return find(folders.SEGMENTS)

    def _files(self) -> list[Path]:
        found: list[Path] = []
        for folder in self.folders():
            with contextlib.suppress(OSError):
                # Some other user's folder may be as full as that user likes.
                found += sorted(itertools.islice(folder.iterdir(), _MOST_FILES))
        return found

    def close(self) -> None:
        """Forget the processes. A segment stays open for as long as a view has it."""
        self._watched.clear()
        self.views = ()
