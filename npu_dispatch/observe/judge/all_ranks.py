"""What keeps the ranks of a job apart: their flight recorders, compared."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from npu_dispatch.observe.judge.calls import (
    Dump,
    Group,
    Rank,
    Seen,
    SeenStream,
    groups_of,
    jobs_of,
    rank_of,
)
from npu_dispatch.observe.judge.flight_recorder import dump_of, load
from npu_dispatch.observe.judge.rank_verdict import verdict
from npu_dispatch.observe.segment import StatsReader
from npu_dispatch.observe.segment.collectives import read_host_place
from npu_dispatch.observe.segment.folders import files_in
from npu_dispatch.observe.segment.listing import Processes, ProcessView
from npu_dispatch.observe.segment.system import is_here, unix_offset_ns
from npu_dispatch.words import counted

_ALL_DONE = "every call has been done by all that made it"
_ESTABLISHED = "01"
# Fields of a line of /proc/PID/net/tcp.
_TCP_STATE, _RETRANSMITS, _INODE = 3, 6, 9


def from_segments() -> list[Dump]:
    """Return the dumps of this machine's processes that are in a group."""
    dumps = []
    with Processes() as processes:
        for view in processes.refresh():
            reader = processes.reader(view)
            if reader and (dump := dump_of(reader)):
                # In values that a file can hold.
                seen = seen_of(view, reader, unix_offset_ns())._asdict()
                seen["streams"] = [one._asdict() for one in seen["streams"]]
                dumps.append(dump | {"process": seen})
    return dumps


def from_files(paths: Iterable[Path]) -> list[Dump]:
    """Return the dumps in files, and in folders of files.

    Raises ValueError for a file that is no dump.
    """
    return [load(file) for file in files_in(paths)]


def seen_of(view: ProcessView, reader: StatsReader, offset_ns: int) -> Seen:
    """Return what can be seen of a rank's process besides its calls.

    `offset_ns` makes moments of the monotonic clock those of the wall clock.
    """
    # Numbers of processes and threads of a container mean nothing out here.
    pid = view.info.pid if is_here(view.info.pid_namespace) else 0
    seen = Seen(
        stopped=view.stopped,
        exits=any(wait.reason == "exit" for wait in view.host_waits),
        streams=tuple(
            SeenStream(
                (s.stats.device, s.stats.stream),
                s.stats.running,
                s.stats.running_at,
                s.stats.held_by or (),
                # A launcher that has not begun has no thread yet.
                dead=pid > 0 and s.stats.thread > 0 and s.cpu_seconds is None,
            )
            for s in view.streams
            if s.stats.depth
        ),
        resent=_resent(pid) if pid else 0,
    )
    place = read_host_place(*reader.behind())
    if place is None:
        return seen
    return seen._replace(
        line=place.line,
        line_since_ns=offset_ns + place.since_ns,
        seen_ns=offset_ns + place.seen_ns,
        oom_ns=offset_ns + place.oom_ns if place.oom_ns else 0,
        in_loader=place.in_loader,
    )


def _resent(pid: int) -> int:
    """Return how many of a process's connections send again what nobody confirms."""
    inodes = set()
    with contextlib.suppress(OSError):  # another user's
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # it was closed meanwhile
                inodes.add(str(file.readlink()).removeprefix("socket:[").rstrip("]"))
    count = 0
    for version in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/net/{version}").read_text().splitlines()[1:]
            for fields in map(str.split, lines):
                again = fields[_TCP_STATE] == _ESTABLISHED and int(
                    fields[_RETRANSMITS], 16
                )
                count += bool(again) and fields[_INODE] in inodes
    return count


def _collectives(group: Group, ranks: dict[int, Rank]) -> Iterator[str]:
    """Yield what ranks say of the first collective that not all have done."""
    meeting = group.meeting()
    if meeting is None:
        return
    number, of_others = meeting.number, meeting.wrong()
    wrong, absent = [], []
    for rank in group.ranks:
        call, name = meeting.there.get(rank), f"rank {rank}"
        if rank not in group.calls:
            absent.append(f"{name} has no process or dump here")
        elif rank in meeting.absent:
            last = meeting.last.get(rank)
            its_last = f"; its last was {last.text()}" if last else ""
            absent.append(f"{name} has not called #{number}{its_last}")
        elif call is None:
            wrong.append(f"{name} has done #{number}")
        elif rank in of_others:
            wrong.append(f"{name} is at {call.text()}: {of_others[rank]}")
        elif call.is_done:
            wrong.append(f"{name} has done {call.text()}")
        else:
            yield f"{name} {call.progress(ranks[rank].time_ns)} {call.text()}"
    yield from wrong
    yield from absent


def _messages(group: Group, ranks: dict[int, Rank]) -> Iterator[str]:
    """Yield the sends and recvs that wait, and whether the other side does."""
    for rank, call, silent in group.waiting_messages():
        state = call.progress(ranks[rank].time_ns)
        text = f"rank {rank} {state} {call.text(group.ranks)}"
        if silent >= 0:
            text += f"; rank {silent} has no {call.answer} for it"
        yield text


def report(dumps: list[Dump]) -> list[str]:
    """Return lines that say who waits for what, and who does not, in each group."""
    lines = []
    for job in jobs_of(dumps):
        ranks = {dump["rank"]: rank_of(dump) for dump in job}
        pids = ", ".join(str(one.pid) for one in ranks.values() if one.pid)
        names = ", ".join(map(str, ranks))
        lines.append(f"job of ranks {names}" + (f" (processes {pids})" if pids else ""))
        if cause := verdict(job):
            lines.append(f"  verdict: {cause}")
        for group in groups_of(list(ranks.values())):
            found = [*_collectives(group, ranks), *_messages(group, ranks)]
            lines.append(
                f"  group '{group.name}' of {counted(len(group.ranks), 'rank')}:"
            )
            lines += [f"    {line}" for line in found or [_ALL_DONE]]
    return lines
