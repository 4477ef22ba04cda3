"""What a process's streams and host threads are doing, in lines of text."""

from __future__ import annotations

from collections.abc import Iterator

from npu_dispatch.diagnosis.verdict import (
    ask_python,
    cycles,
    doing,
    quiet_for,
    waits_for,
)
from npu_dispatch.processes import ProcessView, StreamView
from npu_dispatch.processes.script_name import name_of

__all__ = ["dump_lines"]


def _name(stream: tuple[int, int]) -> str:
    return f"npu:{stream[0]} stream {stream[1]}"


def _doing(view: ProcessView, stream: StreamView) -> str:
    s = stream.stats
    if s.state == "failed":
        return f"failed: {s.failed} failed, {s.dropped} dropped after it"
    if not s.depth and s.held_by is None:
        return f"idle after {s.retired} tasks"
    what = doing(stream)
    if s.running_at:
        what += f", launched at {s.running_at}"
    age = view.tick - (stream.oldest_since or view.tick)
    return f"task {s.retired} {what}; {s.depth} queued, for at most {age:.1f} s"


def dump_lines(view: ProcessView) -> Iterator[str]:
    """Yield a line for each stream, waiting host thread and circle of waits."""
    name = name_of(view.info)
    yield f"process {view.info.pid}" + (f", {name}:" if name else ":")
    for stream in view.streams:
        key = (stream.stats.device, stream.stats.stream)
        yield f"  {_name(key)}: {_doing(view, stream)}"
    for wait in view.host_waits:
        who = f"{wait.thread} (main)" if wait.thread == view.info.pid else wait.thread
        yield (
            f"  host thread {who} waits for {_name((wait.device, wait.stream))} "
            f"up to task {wait.until - 1}, reason {wait.reason}"
            + (f", at {wait.at}" if wait.at else "")
            + f"; for {wait.ns / 1e9:.1f} s"
        )
    if view.quiet_since is not None and view.last_task is not None:
        yield f"  {quiet_for(view)}"
        yield f"  {ask_python(view)}"
    waiting = sum(sum(device.waiting.values()) for device in view.devices)
    waiting += sum(stream.stats.full_waiting for stream in view.streams)
    if waiting > len(view.host_waits):
        yield f"  {waiting - len(view.host_waits)} more host thread(s) wait"
    for circle in cycles(waits_for(view)):
        names = " -> ".join(_name(key) for key in [*circle, circle[0]])
        yield f"  streams wait in a circle: {names}"
