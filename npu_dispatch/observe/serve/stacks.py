"""The waits and the tasks of a process, by Python line."""

from __future__ import annotations

from collections import Counter
from typing import Any

from npu_dispatch.observe.judge.rates import key
from npu_dispatch.observe.judge.verdict import waits_for
from npu_dispatch.observe.segment import StatsReader
from npu_dispatch.observe.segment.listing import ProcessView
from npu_dispatch.observe.serve.snapshot import host_waits
from npu_dispatch.stream_names import stream_name

__all__ = ["stacks"]


def stacks(view: ProcessView, reader: StatsReader | None) -> dict[str, Any]:
    """Return waiting host threads, each stream's head and last tasks, and lines.

    `lines`: how many of the last tasks each line launched, and what the host
    waited there so far.
    """
    edges = waits_for(view)
    launched: Counter[str] = Counter()
    streams = []
    for stream in view.streams:
        s = stream.stats
        recent = reader.recent(s.device, s.stream) if reader else []
        launched.update(task.at for task in recent if task.at)
        held = edges.get(key(stream))
        streams.append(
            {
                "name": stream_name(s.device, s.stream),
                "state": stream.state,
                "head": {
                    "task": s.retired,
                    "op": s.running,
                    "at": s.running_at,
                    "waits_for": stream_name(*held) if held else None,
                }
                if s.depth
                else None,
                "recent": [
                    {
                        "task": task.task,
                        "op": task.op,
                        "at": task.at,
                        "outcome": task.outcome,
                    }
                    for task in recent
                ],
            }
        )
    waits = reader.waits_by_site() if reader else []
    lines = {at: {"at": at, "recent_tasks": n} for at, n in launched.most_common()}
    for site in waits:
        lines.setdefault(site.at, {"at": site.at, "recent_tasks": 0}).update(
            waits=site.waits, wait_seconds=site.wait_ns / 1e9, reason=site.reason
        )
    return {
        "id": view.id,
        "pid": view.info.pid,
        "host_waits": host_waits(view),
        "streams": streams,
        "lines": list(lines.values()),
    }
