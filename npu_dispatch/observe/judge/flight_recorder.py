"""What ranks have called, and what is seen of them: torch's flight recorder.

`torch.distributed.flight_recorder.fr_trace` reads a folder of such files, and so
does `npu-dispatch dump --all-ranks FOLDER`. The process whose segment is read need
not do anything, so it may hang. This imports no torch.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import pickle
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from npu_dispatch.observe.judge.calls import Dump, Seen, SeenStream, rank_of
from npu_dispatch.observe.segment import StatsError, StatsReader
from npu_dispatch.observe.segment.collectives import (
    LoggedCollective,
    LoggedTensor,
    read_host_place,
)
from npu_dispatch.observe.segment.folders import files_in
from npu_dispatch.observe.segment.listing import Processes, ProcessView
from npu_dispatch.observe.segment.system import is_here, unix_offset_ns

_MOST_BYTES = 256 << 20  # a file without memory may have any size
VERSION = "2.10"  # of torch's format
_ESTABLISHED = "01"
# Fields of a line of /proc/PID/net/tcp.
_TCP_STATE, _RETRANSMITS, _INODE = 3, 6, 9
# Messages have numbers of their own, which must not look like those of the
# collectives beside them.
_MESSAGES_FROM = 1 << 32
_NAMES = {
    "all_gather_into_tensor": "_all_gather_base",
    "reduce_scatter_tensor": "_reduce_scatter_base",
    "all_to_all_single": "all_to_all",
}


def _frames(line: str) -> list[dict[str, Any]]:
    where, _, function = line.partition(" in ")
    file, _, number = where.rpartition(":")
    if not number.isdecimal():
        return []
    return [{"name": function, "filename": file, "line": int(number)}]


def _sizes(tensors: list[LoggedTensor], joined: bool) -> list[list[int]]:
    """Return each tensor's sizes; for equal parts of one tensor, the whole's."""
    sizes = [list(t.sizes) for t in tensors]
    if joined and len(sizes) > 1:
        if all(one == sizes[0] for one in sizes):
            return [[len(sizes), *sizes[0]]]
        return [[sum(math.prod(one) for one in sizes)]]
    return sizes


def _entry(call: LoggedCollective, offset_ns: int) -> dict[str, Any]:
    def unix_ns(ns: int) -> int | None:
        return offset_ns + ns if ns else None

    ins = [t for t in call.tensors if not t.is_output]
    outs = [t for t in call.tensors if t.is_output]
    state = call.state
    if state == "failed":
        state = "started" if call.started_ns else "scheduled"
    done = call.ended_ns if call.state == "completed" else 0
    return {
        "record_id": call.number,
        "pg_id": 0,
        "process_group": (call.group.name, call.group.description),
        "collective_seq_id": 0 if call.is_message else call.seq,
        "p2p_seq_id": call.seq + _MESSAGES_FROM if call.is_message else 0,
        "op_id": call.seq,
        "is_p2p": call.is_message,
        "profiling_name": f"hccl:{_NAMES.get(call.name, call.name)}",
        "time_created_ns": unix_ns(call.scheduled_ns),
        "time_discovered_started_ns": unix_ns(call.started_ns),
        "time_discovered_completed_ns": unix_ns(done),
        "input_sizes": _sizes(ins, call.name == "reduce_scatter"),
        "input_dtypes": [t.dtype for t in ins],
        "output_sizes": _sizes(outs, call.name == "all_gather"),
        "output_dtypes": [t.dtype for t in outs],
        "state": state,
        "retired": call.state in ("completed", "failed"),
        "timeout_ms": call.timeout_ms,
        "frames": _frames(call.at),
        # Not of torch's format.
        "name": call.name,
        "token": call.group.token,
        "failed": call.state == "failed",
        "ended_ns": unix_ns(call.ended_ns),
        "line": call.at,
        "all_here_ns": unix_ns(call.all_here_ns),
        "stream": [call.device, call.stream],
        "root": call.root,
        "reduction": call.reduction,
    }


def _entries(call: LoggedCollective, offset_ns: int) -> Iterator[dict[str, Any]]:
    if not call.is_message:
        yield _entry(call, offset_ns)
        return
    for t in call.tensors:
        name, arrow = ("recv", "<-") if t.is_output else ("send", "->")
        title = f"hccl:{name} {call.group.rank}{arrow}{t.peer}"
        row = _entry(call._replace(name=name, tensors=(t,)), offset_ns)
        yield row | {"profiling_name": title, "peer": t.peer}
    if call.name == "batch_isend_irecv":
        row = _entry(call._replace(tensors=()), offset_ns)
        yield row | {"profiling_name": "hccl:coalesced"}


def dump_of(reader: StatsReader) -> Dump | None:
    """Return a process's dump, or None when it is in no group of ranks."""
    log = reader.collectives()
    if log is None or not log.groups:
        return None
    info = reader.info
    offset = unix_offset_ns()
    return {
        "version": VERSION,
        "comm_lib_version": "hccl",
        "pg_config": {
            g.name: {"name": g.name, "desc": g.description, "ranks": str(list(g.ranks))}
            for g in log.groups
        },
        "entries": [entry for call in log.calls for entry in _entries(call, offset)],
        "rank": log.groups[0].global_rank,
        "pid": info.pid,
        "time_ns": offset + time.monotonic_ns(),
        "groups": {g.token: (g.name, list(g.ranks)) for g in log.groups},
    }


# In Python: that of C makes its memo as large as the file says, up to tens of GB.
class _PlainUnpickler(pickle._Unpickler):
    """It makes values only, so that a file cannot make it run code."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"holds a {module}.{name}, not a dump")

    def _refuse(self) -> None:
        raise pickle.UnpicklingError("holds a bytearray, not a dump")

    dispatch: ClassVar[dict[int, Any]] = {
        **pickle._Unpickler.dispatch,
        # It takes as much memory as a length in the file asks for.
        pickle.BYTEARRAY8[0]: _refuse,
    }


def load(path: Path) -> Dump:
    """Return the dump in a file that save(), or torch, has written.

    Raises ValueError for a file that is no dump. No code in the file is run.
    """
    if (size := path.stat().st_size) > _MOST_BYTES:
        raise ValueError(
            f"{path}: not a flight recorder's dump: expected up to {_MOST_BYTES} "
            f"bytes, found {size} bytes"
        )
    try:
        found: Dump = _PlainUnpickler(io.BytesIO(path.read_bytes())).load()
        # Files that torch wrote have the rank in their names.
        digits = path.name[len(path.name.rstrip("0123456789")) :]
        found.setdefault("rank", int(digits or 0))
        rank_of(found)
    # For bytes that are no pickle, it raises exceptions of any class.
    except Exception as error:
        raise ValueError(f"{path}: not a flight recorder's dump: {error}") from None
    return found


def save(dump: Dump, prefix: str) -> Path:
    """Write a dump to the file `prefix` + rank, where fr_trace looks for it."""
    path = Path(f"{prefix}{dump['rank']}")
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_bytes(pickle.dumps(dump))
        unfinished.replace(path)
    except OSError:  # there may be no room for all of it
        unfinished.unlink(missing_ok=True)
        raise
    return path


def from_segments() -> list[Dump]:
    """Return the dumps of this machine's processes that are in a group."""
    dumps = []
    with Processes() as processes:
        for view in processes.refresh():
            # A segment that is torn must not hide those of other processes.
            with contextlib.suppress(OSError, StatsError):
                if dump := dump_of(view.reader):
                    # In values that a file can hold.
                    seen = seen_of(view, unix_offset_ns())._asdict()
                    seen["streams"] = [one._asdict() for one in seen["streams"]]
                    dumps.append(dump | {"process": seen})
    return dumps


def from_files(paths: Iterable[Path]) -> list[Dump]:
    """Return the dumps in files, and in folders of files.

    Raises ValueError for a file that is no dump.
    """
    return [load(file) for file in files_in(paths)]


def seen_of(view: ProcessView, offset_ns: int) -> Seen:
    """Return what can be seen of a rank's process besides its calls.

    `offset_ns` makes moments of the monotonic clock those of the wall clock.
    """
    # Numbers of processes and threads of a container mean nothing out here.
    pid = view.info.pid if is_here(view.info.pid_namespace) else 0
    seen = Seen(
        id=view.id,
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
    place = read_host_place(*view.reader.behind())
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
