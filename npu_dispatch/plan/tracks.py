"""A planned run as a process with tracks, for a file of its timeline."""

from __future__ import annotations

import os
from collections import defaultdict

from npu_dispatch.observe.trace.tracks import Host, Process, Slice, StreamTrack
from npu_dispatch.plan.run import Run

__all__ = ["process_of"]


def process_of(run: Run, name: str) -> Process:
    slices: dict[tuple[int, int], list[Slice]] = defaultdict(list)
    for task in run.tasks:
        after = (*task.after[0], task.after[1]) if task.after else None
        slices[task.stream].append(
            Slice(
                name=task.name,
                position=task.number - 1,
                submitted=int(task.submitted),
                started=int(task.started),
                ended=int(task.ended),
                depth=task.depth,
                waited_for=after,
                line=task.where,
            )
        )
    streams = [
        StreamTrack(device, stream, tasks)
        for (device, stream), tasks in sorted(slices.items())
    ]
    return Process(os.getpid(), name, streams, host=Host.this())
