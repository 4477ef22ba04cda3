"""What a process's streams and host threads are doing, in lines of text."""

from __future__ import annotations

from collections.abc import Iterator

from npu_dispatch.observe.judge.verdict import (
    ask_python,
    cycles,
    doing,
    quiet_for,
    waits_for,
)
from npu_dispatch.observe.segment import OpenWait
from npu_dispatch.observe.segment.listing import ProcessView, StreamView
from npu_dispatch.observe.segment.script_name import name_of
from npu_dispatch.stream_names import stream_title

__all__ = ["dump_lines", "told"]


def _doing(view: ProcessView, stream: StreamView) -> str:
    s = stream.stats
    if s.state == "failed":
        return f"failed: {s.failed} failed, {s.dropped} dropped after it"
    if not s.depth and s.held_by is None:
        return f"idle after {s.retired} tasks"
    what = doing(stream)
    if s.running_at:
        what += f", launched at {s.running_at}"
    age = view.tick - (stream.oldest_queued or view.tick)
    return f"task {s.retired} {what}; {s.depth} queued, the oldest for {age:.1f} s"


def told(wait: OpenWait, pid: int, waits: str = "waits") -> str:
    """Say which host thread of process `pid` waits for what, and at which line."""
    main = " (main)" if wait.thread == pid else ""
    at = f", at {wait.at}" if wait.at else ""
    return (
        f"host thread {wait.thread}{main} {waits} for "
        f"{stream_title(wait.device, wait.stream)} up to task {wait.until - 1}, "
        f"reason {wait.reason}{at}"
    )


def dump_lines(view: ProcessView) -> Iterator[str]:
    """Yield a line for each stream, waiting host thread and circle of waits."""
    name = name_of(view.info)
    yield f"process {view.info.pid}" + (f", {name}:" if name else ":")
    for stream in view.streams:
        key = (stream.stats.device, stream.stats.stream)
        yield f"  {stream_title(*key)}: {_doing(view, stream)}"
    for wait in view.host_waits:
        yield f"  {told(wait, view.info.pid)}; for {wait.ns / 1e9:.1f} s"
    if view.quiet_since is not None and view.last_task is not None:
        yield f"  {quiet_for(view)}"
        yield f"  {ask_python(view)}"
    waiting = sum(sum(device.waiting.values()) for device in view.devices)
    waiting += sum(stream.stats.full_waiting for stream in view.streams)
    if waiting > len(view.host_waits):
        yield f"  {waiting - len(view.host_waits)} more host thread(s) wait"
    for circle in cycles(waits_for(view)):
        names = " -> ".join(stream_title(*key) for key in [*circle, circle[0]])
        yield f"  streams wait in a circle: {names}"
