"""What a killed process was doing, told from the segment that it left.

No code runs when a process is killed, so all of this was in the segment before.
The last task of a stream is the one that was running. After a SIGSEGV in a kernel
it therefore names the operator and the line that launched it.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path

from npu_dispatch.observe.judge.describe import told
from npu_dispatch.observe.segment import (
    OpenWait,
    SegmentInfo,
    StatsError,
    StatsReader,
    StreamStats,
)
from npu_dispatch.observe.segment.clock import unix_ns
from npu_dispatch.observe.segment.folders import SEGMENTS, own_folders
from npu_dispatch.observe.segment.remains import aside, remains
from npu_dispatch.observe.segment.script_name import name_of
from npu_dispatch.observe.segment.untrusted_file import UnsafeFileError
from npu_dispatch.stream_names import stream_title

__all__ = ["dead", "last_line", "opened", "postmortem_lines"]

_WHOLE = re.compile(r"[0-9]+(-[0-9]+)?")
_NOTABLE_S = 1.0


def dead(directory: Path | None = None) -> list[Path]:
    """Return the segments of this user's killed processes, the newest first.

    Those that nobody has found dead before come first, because they died last.
    """
    folders = own_folders(SEGMENTS) if directory is None else [directory]
    return [path for folder in folders for path in _dead_in(folder)]


def _dead_in(directory: Path) -> list[Path]:
    fresh = []
    with contextlib.suppress(OSError):
        for path in directory.iterdir():
            if _WHOLE.fullmatch(path.name):
                told_by = _info(path)
                if told_by and told_by[1] is False:
                    fresh.append((told_by[0].realtime_ns, path))
    first = [path for _, path in sorted(fresh, reverse=True)]
    # Somebody else may find one dead while this looks: it is then there twice.
    found = {aside(path) for path in first}
    known = [path for path in remains(directory) if path not in found]
    return first + [path for path in known if _info(path)]


def opened(path: Path) -> StatsReader | None:
    """Return a reader of what dead() has found, or None once it has been removed."""
    # Whoever has found it dead meanwhile has given it another name.
    for name in (path, aside(path)):
        with contextlib.suppress(FileNotFoundError):
            return StatsReader(name)
    return None


def _info(path: Path) -> tuple[SegmentInfo, bool | None] | None:
    """Return what a segment says of its process, and whether that lives."""
    try:
        with StatsReader(path) as reader:
            return reader.info, reader.lives()
    except (OSError, StatsError, UnsafeFileError, ValueError):
        return None


def _clock(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _moved_ns(stream: StreamStats) -> int:
    return max(stream.last_retired_ns, stream.woken_ns)


def _last_sign(streams: list[StreamStats], waits: list[OpenWait]) -> int:
    """Return the latest moment that the segment tells of."""
    moments = [*map(_moved_ns, streams), *(wait.since_ns for wait in waits)]
    return max(moments, default=0)


def _state(stream: StreamStats, last: int) -> str:
    """Say what a stream did at the `last` moment that is known of the process."""
    if stream.state == "failed":
        return f"had failed: {stream.failed} failed, {stream.dropped} dropped after it"
    if not stream.depth:
        return f"idle after {stream.retired} tasks"
    what = f"was at task {stream.retired}"
    if stream.held_by is not None:
        title = stream_title(*stream.held_by)
        what = f"waited for task {stream.held_until} of {title}"
    # How long it lived after that moment is not known.
    seconds = (last - _moved_ns(stream)) / 1e9
    if _moved_ns(stream) and seconds >= _NOTABLE_S:
        what += f", no progress for {seconds:,.0f} s or more"
    return f"{what}; {stream.depth} queued"


def last_line(reader: StatsReader) -> str:
    """Return the Python line that a dead process was at; "" when not known."""
    lines = [wait.at for wait in reader.open_waits()]
    streams = reader.streams()
    lines += [s.running_at for s in streams if s.depth]
    lines += [
        task.at for s in streams for task in reader.recent(s.device, s.stream)[-1:]
    ]
    return next(filter(None, lines), "")


def postmortem_lines(reader: StatsReader, tasks: int = 8) -> Iterator[str]:
    """Yield what a dead process's streams and host threads were doing.

    `tasks`: how many of each stream's last ones to show.
    """
    info, streams, waits = reader.info, reader.streams(), reader.open_waits()
    who = f"process {info.pid}, {name_of(info)}"
    if info.rank:
        who += f", rank {info.rank} of {info.world_size or '?'}"
    if info.job_id:
        who += f", job {info.job_id}"
    text = f"{who}, killed; began {_clock(info.realtime_ns / 1e9)}"
    last = _last_sign(streams, waits)
    if last:
        text += f", last noted {_clock(unix_ns(last) / 1e9)}"
    line = last_line(reader)
    yield f"{text} at {line}" if line else text
    for device in reader.devices():
        yield (
            f"  npu:{device.device}: {device.allocated} bytes allocated, "
            f"{device.reserved} reserved, at most {device.allocated_peak}; "
            f"{device.ooms} out of memory"
        )
    for stream in streams:
        yield f"  {stream_title(stream.device, stream.stream)}: {_state(stream, last)}"
        yield from _tasks(reader, stream, tasks)
    for wait in waits:
        yield f"  {told(wait, info.pid, 'waited')}"
    if not streams:
        yield "  it had launched nothing"


def _tasks(reader: StatsReader, stream: StreamStats, most: int) -> Iterator[str]:
    for task in reader.recent(stream.device, stream.stream)[-most:]:
        outcome = task.outcome
        if outcome == "begun":
            outcome = "done" if task.task < stream.retired else "not finished"
        at = f", launched at {task.at}" if task.at else ""
        yield f"    task {task.task}: {task.op or 'a task'}{at}: {outcome}"
