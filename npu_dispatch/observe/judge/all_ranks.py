"""What keeps the ranks of a job apart: their flight recorders, compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from npu_dispatch.observe.judge.calls import (
    Group,
    groups_of,
    jobs_of,
    meeting_of,
    state_of,
    waiting_messages,
    what,
)
from npu_dispatch.observe.judge.evidence import evidence_of
from npu_dispatch.observe.judge.flight_recorder import Dump, dump_of, load
from npu_dispatch.observe.judge.rank_verdict import verdict
from npu_dispatch.observe.segment.clock import unix_offset_ns
from npu_dispatch.observe.segment.listing import Processes

__all__ = ["from_files", "from_segments", "report"]


def from_segments() -> list[Dump]:
    """Return the dumps of this machine's processes that are in a group."""
    dumps = []
    with Processes() as processes:
        for view in processes.refresh():
            reader = processes.reader(view)
            if reader and (dump := dump_of(reader)):
                dump["process"] = evidence_of(view, reader, unix_offset_ns())
                dumps.append(dump)
    return dumps


def from_files(paths: Iterable[Path]) -> list[Dump]:
    """Return the dumps in files, and in folders of files.

    Raises ValueError for a file that is no dump.
    """
    found: list[Dump] = []
    for path in paths:
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        found += [load(file) for file in files if not file.name.startswith(".")]
    return found


def _collectives(group: Group) -> Iterator[str]:
    """Yield what ranks say of the first collective that not all have done."""
    meeting = meeting_of(group)
    if meeting is None:
        return
    number, of_others = meeting.number, meeting.wrong()
    wrong, absent = [], []
    for rank in group.ranks:
        now = group.now_ns.get(rank, 0)
        if rank in meeting.there:
            entry = meeting.there[rank]
            if rank in of_others:
                wrong.append(f"rank {rank} is at {what(entry)}: {of_others[rank]}")
            elif entry["state"] == "completed":
                wrong.append(f"rank {rank} has done {what(entry)}")
            else:
                yield f"rank {rank} {state_of(entry, now)} {what(entry)}"
        elif rank not in group.calls:
            absent.append(f"rank {rank} has no process or dump here")
        elif rank in meeting.absent:
            text = f"rank {rank} has not called #{number}"
            if rank in meeting.last:
                text += f"; its last was {what(meeting.last[rank])}"
            absent.append(text)
        else:
            wrong.append(f"rank {rank} has done #{number}")
    yield from wrong
    yield from absent


def _messages(group: Group) -> Iterator[str]:
    """Yield the sends and recvs that wait, and whether the other side does."""
    for rank, entry, silent in waiting_messages(group):
        state = state_of(entry, group.now_ns[rank])
        text = f"rank {rank} {state} {what(entry, group.ranks)}"
        if silent >= 0:
            other = "send" if entry["name"] == "recv" else "recv"
            text += f"; rank {silent} has no {other} for it"
        yield text


def report(dumps: list[Dump]) -> list[str]:
    """Return lines that say who waits for what, and who does not, in each group."""
    lines = []
    for job in jobs_of(dumps):
        pids = ", ".join(str(dump["pid"]) for dump in job if "pid" in dump)
        ranks = ", ".join(str(dump["rank"]) for dump in job)
        lines.append(f"job of ranks {ranks}" + (f" (processes {pids})" if pids else ""))
        if cause := verdict(job):
            lines.append(f"  verdict: {cause}")
        for group in groups_of(job):
            found = [*_collectives(group), *_messages(group)]
            if not found:
                found = ["every call has been done by all that made it"]
            lines.append(f"  group '{group.name}' of {len(group.ranks)} ranks:")
            lines += [f"    {line}" for line in found]
    return lines
