"""Range markers, with host and device times, and torch_npu's names for them.

They go to the trace while somebody traces this process, and to a bounded list while
torch.npu.profiler records. Otherwise nothing is kept.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import logging
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, Self, TypeVar

import torch

from npu_dispatch import _C
from npu_dispatch.npu.streams import Stream
from npu_dispatch.observe.segment.layout import MARK_BEGIN, MARK_END, MARK_POINT

_MOST = 65536

# Streams write their times here. The memory is never freed, and is used round robin,
# so a stream that reaches an old mark writes into memory that is still there.
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
    number: int = 0  # in the trace
    device_slots: tuple[int, int] = (-1, -1)

    def device_ns(self) -> tuple[int, int]:
        """Return when the stream reached both ends; 0 if not yet, or without one."""
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
    """Tells the trace of marks, and keeps the latest while it is on, on any thread."""

    def __init__(self) -> None:
        self.on = False  # whether it keeps marks
        self._lock = threading.Lock()
        self._marks: deque[Mark] = deque(maxlen=_MOST)
        self._slots = itertools.count()
        self._numbers = itertools.count(1)

    def wanted(self) -> bool:
        """Return whether anybody wants marks now."""
        return self.on or _C.trace_wanted()

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

    def end(self, mark: Mark) -> None:
        # First on the host: the stream may get there before this returns.
        mark.end_ns = time.monotonic_ns()
        self._tell(mark, MARK_END)
        if mark.stream:
            mark.device_slots = mark.device_slots[0], self._stamp(mark, MARK_END)

    def point(self, name: str, domain: str, stream: torch.Stream | None) -> None:
        mark = self.begin(name, domain, stream, MARK_POINT)
        mark.device_slots = mark.device_slots[0], mark.device_slots[0]
        mark.end_ns = mark.start_ns

    def begin(
        self,
        name: str,
        domain: str,
        stream: torch.Stream | None,
        kind: int = MARK_BEGIN,
    ) -> Mark:
        mark = Mark(name, domain, threading.get_native_id(), time.monotonic_ns())
        mark.number = next(self._numbers)
        self._tell(mark, kind)
        if stream is not None:
            mark.stream = stream.device_index, stream.stream_id
            mark.device_slots = self._stamp(mark, kind), -1
        if self.on:
            with self._lock:
                self._marks.append(mark)
        return mark

    def _tell(self, mark: Mark, kind: int) -> None:
        """Note the moment on the host in the trace."""
        if _C.trace_wanted():
            thread = threading.get_native_id()
            texts = _C.trace_text(mark.name), _C.trace_text(mark.domain)
            _C.host_mark(thread, mark.number, *texts, kind)

    def _stamp(self, mark: Mark, kind: int) -> int:
        """Let the stream note when it gets here; return where it writes that."""
        assert mark.stream
        slot, address, texts = -1, 0, (0, 0)
        if self.on:
            slot = next(self._slots) % len(_stamps[0])
            _stamps[0][slot] = 0
            address = ctypes.addressof(_stamps[0]) + 8 * slot
        if _C.trace_wanted():
            texts = _C.trace_text(mark.name), _C.trace_text(mark.domain)
        try:
            _C.queue_mark(*mark.stream, address, mark.number, *texts, kind)
        except Exception:  # the stream has failed, which marking must not report
            return -1
        return slot


recorder = Recorder()


class Ranges:
    """Open ranges: a stack per thread and domain, and numbered ones."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._lock = threading.Lock()
        self._last = 0  # the newest number
        self._open: dict[tuple[str, int], Mark] = {}  # of those that were wanted

    def _stack(self, domain: str) -> list[Mark | None]:
        stacks: dict[str, list[Mark | None]]
        stacks = self._local.__dict__.setdefault("stacks", {})
        return stacks.setdefault(domain, [])

    def push(self, name: str, domain: str, stream: torch.Stream | None) -> int:
        stack = self._stack(domain)
        wanted = recorder.wanted()
        stack.append(recorder.begin(name, domain, stream) if wanted else None)
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
        with self._lock:
            self._last = number = self._last + 1
        if recorder.wanted():
            self._open[domain, number] = recorder.begin(name, domain, stream)
        return number

    def finish(self, number: int, domain: str) -> None:
        """End a range; raises KeyError when no range had that number."""
        if not 0 < number <= self._last:
            raise KeyError(number)
        if mark := self._open.pop((domain, number), None):
            recorder.end(mark)


P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger(__name__)
_ranges = Ranges()


def _bad(message: object, stream: object, domain: object, may_be_empty: bool) -> bool:
    """Warn of what is wrong with the arguments, if anything."""
    what = ""
    if not isinstance(message, str) or not message:
        what = f"message must be a non-empty str, but got {message!r}"
    elif not isinstance(domain, str) or not (domain or may_be_empty):
        what = f"domain must be a non-empty str, but got {domain!r}"
    elif stream is not None and not isinstance(stream, Stream):
        what = f"stream must be a torch.npu.Stream, but got {stream!r}"
    if what:
        warnings.warn(f"mstx: {what}; nothing is marked", stacklevel=4)
    return bool(what)


def _quietly(default: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Log what the function raises and return `default` instead."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                _log.error("mstx.%s: %s", function.__name__, error)
                result: R = default
                return result

        return call

    return decorate


class mstx:
    """Marks and ranges, which `npu-dispatch trace` and torch.npu.profiler show.

    With a stream, the mark is also a task of that stream, which notes when it is
    reached. For bad arguments there is a warning and a default result.
    """

    @staticmethod
    @_quietly(None)
    def mark(
        message: str, stream: Stream | None = None, domain: str = "default"
    ) -> None:
        """Mark this moment."""
        if not _bad(message, stream, domain, True) and recorder.wanted():
            recorder.point(message, domain, stream)

    @staticmethod
    @_quietly(0)
    def range_start(
        message: str, stream: Stream | None = None, domain: str = "default"
    ) -> int:
        """Open a range that any thread may end; return its number, 0 if refused."""
        if _bad(message, stream, domain, False):
            return 0
        return _ranges.start(message, domain, stream)

    @staticmethod
    @_quietly(None)
    def range_end(range_id: int, domain: str = "default") -> None:
        """Close the range of that number."""
        try:
            _ranges.finish(range_id, domain)
        except (KeyError, TypeError):
            warnings.warn(
                f"mstx: no open range {range_id!r} in domain {domain!r}", stacklevel=3
            )

    @staticmethod
    @_quietly(-1)
    def range_push(
        message: str, stream: Stream | None = None, domain: str = "default"
    ) -> int:
        """Open a range within this thread's latest; return its depth, -1 if refused."""
        if _bad(message, stream, domain, False):
            return -1
        return _ranges.push(message, domain, stream)

    @staticmethod
    @_quietly(-1)
    def range_pop(domain: str = "default") -> int:
        """Close this thread's latest range; return its depth, -1 if none."""
        return _ranges.pop(domain)

    @staticmethod
    @_quietly(lambda function: function)
    def mstx_range(
        message: str, stream: Stream | None = None, domain: str = "default"
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Return a decorator that puts each call of a function in a range."""
        if _bad(message, stream, domain, False):
            return lambda function: function
        return mstx.annotate(message, stream, domain)

    class annotate:
        """A context or decorator for a range, which an exception closes, too.

        Without a message, a decorated function's range has its name.
        """

        def __init__(
            self,
            message: str = "",
            stream: Stream | None = None,
            domain: str = "default",
        ) -> None:
            self.message, self.stream, self.domain = message, stream, domain
            self._open: list[int] = []

        def __enter__(self) -> Self:
            self._open.append(mstx.range_start(self.message, self.stream, self.domain))
            return self

        def __exit__(self, *exc: object) -> None:
            number = self._open.pop()
            if number:
                mstx.range_end(number, self.domain)

        def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
            @functools.wraps(function)
            def call(*args: P.args, **kwargs: P.kwargs) -> R:
                message = self.message or function.__name__
                with mstx.annotate(message, self.stream, self.domain):
                    return function(*args, **kwargs)

            return call
