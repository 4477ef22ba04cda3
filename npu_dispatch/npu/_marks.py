"""Where range markers go: a bounded list of marks, with host and device times."""

from __future__ import annotations

import ctypes
import itertools
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import torch

from npu_dispatch import _C

_MOST = 65536

# Streams write their times here. Never freed, and used round robin: a stream
# that reaches an old mark writes into memory that is still there.
_stamps: list[ctypes.Array[ctypes.c_uint64]] = []


@dataclass(slots=True)
class Mark:
    """One marker, or one range from its start to its end."""

    name: str
    domain: str
    thread: int
    start_ns: int
    end_ns: int = 0  # 0: a range that is still open
    stream: tuple[int, int] | None = None  # device, id
    device_slots: tuple[int, int] = (-1, -1)

    def device_ns(self) -> tuple[int, int]:
        """Return when the stream reached both ends; 0: not yet, or no stream."""
        first, last = (_stamps[0][s] if s >= 0 else 0 for s in self.device_slots)
        return first, last

    def events(self) -> list[dict[str, Any]]:
        rows = [("host", f"thread {self.thread}", self.start_ns, self.end_ns)]
        if self.stream:
            device, stream = self.stream
            rows.append((f"npu:{device}", f"stream {stream}", *self.device_ns()))
        return [
            {
                "ph": "X",
                "name": self.name,
                "cat": self.domain,
                "pid": process,
                "tid": row,
                "ts": begin / 1000,
                "dur": (end - begin) / 1000,
            }
            for process, row, begin, end in rows
            if begin and end
        ]


class Recorder:
    """Keeps the latest marks while switched on. Any thread."""

    def __init__(self) -> None:
        self.on = False
        self._lock = threading.Lock()
        self._marks: deque[Mark] = deque(maxlen=_MOST)
        self._slots = itertools.count()

    def switch(self, on: bool) -> None:
        with self._lock:
            if not _stamps:
                _stamps.append((ctypes.c_uint64 * (2 * _MOST))())
            self.on = on

    def marks(self) -> list[Mark]:
        with self._lock:
            return list(self._marks)

    def clear(self) -> None:
        with self._lock:
            self._marks.clear()

    def begin(self, name: str, domain: str, stream: torch.Stream | None) -> Mark:
        mark = Mark(name, domain, threading.get_native_id(), time.monotonic_ns())
        if stream is not None:
            mark.stream = stream.device_index, stream.stream_id
            mark.device_slots = self._stamp(mark), -1
        with self._lock:
            self._marks.append(mark)
        return mark

    def end(self, mark: Mark) -> None:
        if mark.stream:
            mark.device_slots = mark.device_slots[0], self._stamp(mark)
        mark.end_ns = time.monotonic_ns()

    def point(self, name: str, domain: str, stream: torch.Stream | None) -> None:
        mark = self.begin(name, domain, stream)
        mark.device_slots = mark.device_slots[0], mark.device_slots[0]
        mark.end_ns = mark.start_ns

    def _stamp(self, mark: Mark) -> int:
        assert mark.stream
        slot = next(self._slots) % len(_stamps[0])
        _stamps[0][slot] = 0
        _C.queue_stamp(*mark.stream, ctypes.addressof(_stamps[0]) + 8 * slot)
        return slot


recorder = Recorder()


class Ranges:
    """Open ranges: a stack per thread and domain, and numbered ones."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._ids = itertools.count(1)
        self._open: dict[tuple[str, int], Mark | None] = {}

    def _stack(self, domain: str) -> list[Mark | None]:
        stacks: dict[str, list[Mark | None]]
        stacks = self._local.__dict__.setdefault("stacks", {})
        return stacks.setdefault(domain, [])

    def push(self, name: str, domain: str, stream: torch.Stream | None) -> int:
        stack = self._stack(domain)
        stack.append(recorder.begin(name, domain, stream) if recorder.on else None)
        return len(stack) - 1

    def pop(self, domain: str) -> int:
        stack = self._stack(domain)
        if not stack:
            return -1
        mark = stack.pop()
        if mark is not None:
            recorder.end(mark)
        return len(stack)

    def start(self, name: str, domain: str, stream: torch.Stream | None) -> int:
        number = next(self._ids)
        on = recorder.on
        self._open[domain, number] = (
            recorder.begin(name, domain, stream) if on else None
        )
        return number

    def finish(self, number: int, domain: str) -> None:
        """End a range; KeyError when there is none of that number."""
        mark = self._open.pop((domain, number))
        if mark is not None:
            recorder.end(mark)
