"""Events that several processes see: two numbers in a file of shared memory.

The first counts the records that were asked for, and the second those that their
stream has reached. A wait is for all records that any process has asked for so far.
Behind the second is which record a failed stream has dropped (csrc/interop/flag.h).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import mmap
import os
import secrets
import weakref
from collections.abc import Generator
from pathlib import Path
from typing import Any, Self

import torch

from npu_dispatch import _C
from npu_dispatch.npu.runtime.codes import coded
from npu_dispatch.npu.runtime.start import _lazy_init
from npu_dispatch.npu.streams import awaiting
from npu_dispatch.npu.streams.current import current_stream
from npu_dispatch.npu.streams.event import Event
from npu_dispatch.observe.segment.system import has_ended, is_here, pid_namespace
from npu_dispatch.observe.segment.untrusted_file import open_untrusted

_FOLDER = Path("/dev/shm")
_PREFIX = "npu_event-"
_ASKED, _REACHED = 0, 8  # offsets of the words

# Seconds between two looks at a word that another process writes.
_FIRST_LOOK, _LAST_LOOK = 0.0001, 0.005


class _Words:
    """The mapped words of one event."""

    def __init__(self, path: Path) -> None:
        # Mapped, since tasks wait for it: whoever makes it shorter meanwhile is
        # a process of this user that means harm.
        file = open_untrusted(path, writable=True)
        try:
            self.map = mmap.mmap(file, mmap.PAGESIZE)  # ValueError: it is shorter
        finally:
            os.close(file)
        self._hold = ctypes.c_char.from_buffer(self.map)
        self.address = ctypes.addressof(self._hold)
        # The tasks of this process that may still use the words.
        self.points: dict[tuple[int, int], int] = {}

    def used_by(self, stream: torch.Stream) -> None:
        key = stream.device_index, stream.stream_id
        self.points[key] = _C.stream_tail(*key)

    def is_done(self) -> bool:
        return all(_C.stream_reached(*key, n) for key, n in self.points.items())


# Words whose event is gone, while tasks may still name them.
_leaving: list[_Words] = []


def _leave(words: _Words, owned: Path | None) -> None:
    if owned is not None and os.getpid() == _maker(owned):
        owned.unlink(missing_ok=True)
    _leaving.append(words)


def remove_orphans() -> None:
    """Remove the files whose process is gone; those who have one mapped keep it."""
    for path in _FOLDER.glob(f"{_PREFIX}*"):
        with contextlib.suppress(ValueError, OSError):
            # Of another container's processes, whose numbers mean nothing here,
            # nobody can say whether they live.
            if not is_here(int(path.name.split("-")[2])):
                continue
            if has_ended(_maker(path)):
                path.unlink()


def _maker(path: Path) -> int:
    return int(path.name.split("-")[1])


class SharedEvent(Event, asked_by="interprocess"):
    """An Event(interprocess=True)."""

    _words: _Words

    def __new__(cls) -> Self:
        name = f"{_PREFIX}{os.getpid()}-{pid_namespace()}-{secrets.token_hex(8)}"
        path = _FOLDER / name
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(path, flags, 0o600)
        try:
            # The file gets memory here, not only a size: touching a page without
            # memory would end the process.
            os.posix_fallocate(file, 0, mmap.PAGESIZE)
        except OSError:
            path.unlink()
            raise
        finally:
            os.close(file)
        try:
            return cls._made(path, path)
        except OSError:
            path.unlink()
            raise

    @classmethod
    def _made(cls, path: Path, owned: Path | None) -> Self:
        _leaving[:] = [words for words in _leaving if not words.is_done()]
        event = super().__new__(cls, interprocess=True)
        event._path, event._words, event._device = path, _Words(path), None
        weakref.finalize(event, _leave, event._words, owned)
        return event

    @classmethod
    def _opened(cls, device: int, handle: bytes) -> Self:
        if not isinstance(handle, bytes):
            raise coded(
                TypeError, f"handle must be bytes, but got {type(handle).__name__}"
            )
        name = handle.decode(errors="replace")
        path = _FOLDER / name
        if not name.startswith(_PREFIX) or "/" in name or not path.is_file():
            raise coded(
                RuntimeError,
                f"{handle!r} is no handle of an interprocess event, or the process "
                "that made the event has dropped it",
            )
        try:
            event = cls._made(path, None)
        except (OSError, ValueError) as error:
            raise coded(
                RuntimeError, f"{handle!r} is no handle of an event: {error}"
            ) from None
        event._device = torch.device("npu", device)
        return event

    _path: Path
    _device: torch.device | None
    # The last record by this process: its count, and stream and task number.
    _recorded: tuple[int, tuple[int, int, int]] = 0, (0, 0, 0)

    @property
    def device(self) -> torch.device | None:  # type: ignore[override]
        return self._device

    def ipc_handle(self) -> bytes:
        return self._path.name.encode()

    def __reduce_ex__(self, protocol: object) -> Any:
        index = self._device.index if self._device else 0
        return Event.from_ipc_handle, (index, self.ipc_handle())

    def _asked(self) -> int:
        return _C.flag_value(self._words.address + _ASKED)

    @property
    def event_id(self) -> int:  # type: ignore[override]
        # It is odd, unlike the address of an engine's event, so _C tells them apart.
        return self._words.address | 1 if self._asked() else 0

    def __await__(self) -> Generator[Any, Any, None]:
        # No queue of this process comes to another one's records, and nothing
        # but looking tells of a word in shared memory.
        point = self._local_point()
        if point is None:
            return self._looks().__await__()
        return awaiting.on_number(point)

    async def _looks(self) -> None:
        wanted, pause = self._asked(), _FIRST_LOOK
        while self._behind(wanted) < 0:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LAST_LOOK)
        self._wait_for(wanted)  # it returns at once, or raises

    def _local_point(self) -> tuple[int, int, int] | None:
        """Return the task that reaches the last record, if this process queued it."""
        number, point = self._recorded
        return point if number and number == self._asked() else None

    def record(self, stream: torch.Stream | None = None) -> None:
        _lazy_init()
        stream = current_stream() if stream is None else stream
        if self._device is None:
            self._device = torch.device("npu", stream.device_index)
        elif self._device.index != stream.device_index:
            raise coded(
                RuntimeError,
                f"the event was recorded on {self._device} and cannot be recorded on "
                f"npu:{stream.device_index}; make another event",
            )
        number = self._asked() + 1
        _C.flag_count(
            stream.device_index,
            stream.stream_id,
            self._words.address + _REACHED,
            number,
        )
        ctypes.c_uint32.from_address(self._words.address + _ASKED).value = number
        self._words.used_by(stream)
        key = stream.device_index, stream.stream_id
        self._recorded = number, (*key, self._words.points[key])
        # torch.Stream.wait_event() looks at torch's own event alone.
        super().record(stream)

    def wait(self, stream: torch.Stream | None = None) -> None:
        number = self._asked()
        if not number:
            return
        stream = current_stream() if stream is None else stream
        _C.flag_reach(
            stream.device_index,
            stream.stream_id,
            self._words.address + _REACHED,
            number,
        )
        self._words.used_by(stream)

    def query(self) -> bool:
        if self._behind() < 0:
            return False
        self.synchronize()  # it returns at once or raises, and orders what follows
        return True

    def _behind(self, number: int | None = None) -> int:
        reached = _C.flag_value(self._words.address + _REACHED)
        number = self._asked() if number is None else number
        return ctypes.c_int32(reached - number).value

    def synchronize(self) -> None:
        self._wait_for(self._asked())

    def _wait_for(self, number: int) -> None:
        device = self._device.index if self._device else 0
        _C.flag_host_wait(device, self._words.address + _REACHED, number)

    def elapsed_time(self, end_event: torch.Event) -> float:
        raise coded(RuntimeError, "an interprocess event has no time")

    def recorded_time(self) -> int:
        raise coded(RuntimeError, "an interprocess event has no time")

    def __repr__(self) -> str:
        return f"<torch.npu.Event interprocess {self._path.name}>"
