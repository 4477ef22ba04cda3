"""What a process's streams and host threads are doing, in lines of text."""

from __future__ import annotations

from collections.abc import Iterator

from npu_dispatch.processes import ProcessView, StreamView
from npu_dispatch.service.verdict import cycles, waits_for

__all__ = ["dump_lines"]


def _name(stream: tuple[int, int]) -> str:
    return f"npu:{stream[0]} stream {stream[1]}"


def _doing(view: ProcessView, stream: StreamView) -> str:
    s = stream.stats
    if s.state == "failed":
        return f"failed: {s.failed} failed, {s.dropped} dropped after it"
    if s.held_by is not None:
        what = f"waits for task {s.held_until} of {_name(s.held_by)}"
    elif s.depth:
        what = f"runs {s.running or 'a task'}"
    else:
        return f"idle after {s.retired} tasks"
    if s.running_at:
        what += f", launched at {s.running_at}"
    age = view.time - (stream.oldest_since or view.time)
    return f"task {s.retired} {what}; {s.depth} queued, for at most {age:.1f} s"


def dump_lines(view: ProcessView) -> Iterator[str]:
    """Yield a line per stream, waiting host thread and circle of waits."""
    yield f"process {view.info.pid}:"
    for stream in view.streams:
        key = (stream.stats.device, stream.stats.stream)
        yield f"  {_name(key)}: {_doing(view, stream)}"
        if stream.stats.full_waiting:
            yield f"    {stream.stats.full_waiting} host thread(s) wait for room"
    for device in view.devices:
        for reason, count in device.waiting.items():
            if count:
                where = device.waiting_at[reason]
                yield (
                    f"  npu:{device.device}: {count} host thread(s) wait, "
                    f"reason {reason}" + (f", at {where}" if where else "")
                )
    for circle in cycles(waits_for(view)):
        names = " -> ".join(_name(key) for key in [*circle, circle[0]])
        yield f"  streams wait in a circle: {names}"
