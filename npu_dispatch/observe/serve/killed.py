"""Processes that were killed lately, told from the segments that they left."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from npu_dispatch.observe.judge.describe import last_line
from npu_dispatch.observe.segment import StatsError, StatsReader
from npu_dispatch.observe.segment.folders import remains
from npu_dispatch.observe.segment.listing import Processes, user_name
from npu_dispatch.observe.segment.system import unix_ns
from npu_dispatch.observe.segment.untrusted_file import UnsafeFileError
from npu_dispatch.observe.segment.values import picked

_LATELY_S = 600.0  # for which killed processes are shown


class Killed:
    """Remembers each killed process, because its file is read once and may go away."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._known: dict[tuple[str, int], dict[str, Any] | None] = {}

    def look(self) -> list[dict[str, Any]]:
        """Return those of the last ten minutes, the newest first."""
        there = set()
        left = [
            path for folder in self._processes.folders() for path in remains(folder)
        ]
        for path in left:
            try:
                status = path.lstat()
            except OSError:
                continue
            key = path.name, status.st_ino
            there.add(key)
            if key not in self._known:
                age = max(0.0, time.time() - status.st_mtime)
                self._known[key] = self._read(path, age, status.st_uid)
        oldest = time.monotonic() - _LATELY_S
        known = self._known.items()
        late = {key: one for key, one in known if one and one["tick"] > oldest}
        # Files that are there are not read again, although they are of no use.
        self._known = dict.fromkeys(there) | late
        return sorted(late.values(), reverse=True, key=lambda one: one["tick"])

    def _read(self, path: Path, age: float, uid: int) -> dict[str, Any] | None:
        try:
            with StatsReader(path) as reader:
                info = reader.info
                at = last_line(reader)
        except (OSError, StatsError, UnsafeFileError, ValueError):
            return None
        if self._processes.pid not in (None, info.pid):
            return None
        tick = time.monotonic() - age
        return {
            **picked(info, "pid name rank job_id"),
            "user": user_name(uid),
            "time": unix_ns(int(tick * 1e9)) / 1e9,
            "tick": tick,  # at which somebody found it dead
            "at": at,
        }
