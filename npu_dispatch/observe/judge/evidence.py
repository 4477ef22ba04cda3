"""What can be seen of a rank's process besides its calls, which may explain them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from npu_dispatch.observe.segment import StatsReader
from npu_dispatch.observe.segment.collective_totals import read_host_place
from npu_dispatch.observe.segment.listing import ProcessView
from npu_dispatch.observe.segment.proc_stat import is_here, stat_fields

__all__ = ["Evidence", "evidence_of", "is_evidence"]

Evidence = dict[str, Any]

_STATE, _STOPPED = 0, (b"T", b"t")
_ESTABLISHED = "01"
# Fields of a line of /proc/PID/net/tcp.
_LOCAL, _REMOTE, _TCP_STATE, _RETRANSMITS, _INODE = 1, 2, 3, 6, 9


def evidence_of(view: ProcessView, reader: StatsReader, offset_ns: int) -> Evidence:
    """Return what is seen of a process, in values that a file can hold.

    `offset_ns` makes moments of the monotonic clock those of the wall clock.
    """
    # Numbers of processes and threads of a container mean nothing out here.
    pid = view.info.pid if is_here(view.info.pid_namespace) else 0
    place = read_host_place(*reader.behind())
    fields = stat_fields(pid) if pid else []
    found: Evidence = {
        "stopped": bool(fields) and fields[_STATE] in _STOPPED,
        "exits": any(wait.reason == "exit" for wait in view.host_waits),
        "streams": [
            {
                "stream": [s.stats.device, s.stats.stream],
                "runs": s.stats.running,
                "at": s.stats.running_at,
                "held_by": list(s.stats.held_by or ()),
                # A launcher that has not begun has no thread yet.
                "dead": pid > 0 and s.stats.thread > 0 and s.cpu_seconds is None,
            }
            for s in view.streams
            if s.stats.depth
        ],
        "resent": _resent(pid) if pid else 0,
    }
    if place is not None:
        found |= {
            "line": place.line,
            "line_since_ns": offset_ns + place.since_ns,
            "seen_ns": offset_ns + place.seen_ns,
            "oom_ns": offset_ns + place.oom_ns if place.oom_ns else 0,
            "in_loader": place.in_loader,
        }
    return found


def is_evidence(value: Any) -> bool:
    """Return whether a file has what evidence_of() returns, or a part of it."""
    if not isinstance(value, dict):
        return False
    numbers = ("line_since_ns", "seen_ns", "oom_ns", "resent")
    streams = value.get("streams", [])
    return (
        all(isinstance(value.get(n, 0), int) for n in numbers)
        and all(abs(value.get(n, 0)) < 1 << 64 for n in numbers)
        and isinstance(value.get("line", ""), str)
        and isinstance(streams, list)
        and all(map(_is_stream, streams))
    )


def _is_stream(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    pairs = value.get("stream"), value.get("held_by")
    return (
        all(isinstance(pair, list | tuple) for pair in pairs)
        and all(isinstance(n, int) for pair in pairs for n in pair or ())
        and len(pairs[0] or ()) == 2
        and all(isinstance(value.get(text), str) for text in ("runs", "at"))
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
        try:
            lines = Path(f"/proc/{pid}/net/{version}").read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            again = fields[_TCP_STATE] == _ESTABLISHED and int(fields[_RETRANSMITS], 16)
            count += bool(again) and fields[_INODE] in inodes
    return count
