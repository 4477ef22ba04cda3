"""Streams that others have made, and events that are no part of captured graphs."""

from __future__ import annotations

import atexit
import threading
import weakref
from typing import Self

import torch

from npu_dispatch import _C
from npu_dispatch.npu.runtime.codes import coded, expect
from npu_dispatch.npu.runtime.device_error import DeviceError
from npu_dispatch.npu.runtime.devices import Device, _get_device_index
from npu_dispatch.npu.runtime.start import _lazy_init
from npu_dispatch.npu.streams import Stream, current_stream

# With these, a wait for a record that never comes does not keep the process alive.
atexit.register(_C.stop_waiting_tasks)


class ExternalStream(Stream):
    """A stream that somebody else made and owns, with all of Stream's methods.

    `stream_ptr` is a pointer from npurt().npuStreamCreate(), or a stream's
    `npu_stream`. Equal pointers are the same stream. Raises RuntimeError for 0 and
    unknown pointers, and for a priority or another way of launching, which only the
    stream's maker can choose.
    """

    def __new__(
        cls,
        stream_ptr: int,
        device: Device = None,
        *,
        priority: int = 0,
        is_sync_launch: bool = False,
    ) -> Self:
        _lazy_init()
        if priority or is_sync_launch:
            raise coded(
                RuntimeError,
                "ExternalStream: priority and is_sync_launch belong to the stream, "
                f"but got priority={priority!r}, is_sync_launch={is_sync_launch!r}",
            )
        expect(stream_ptr, int, "stream_ptr")
        if stream_ptr == 0:
            raise coded(RuntimeError, "ExternalStream: stream_ptr must not be null")
        index, stream_id = stream_ptr >> 32, stream_ptr & 0xFFFFFFFF
        if stream_ptr < 0 or index >= _C.device_count():
            raise coded(
                RuntimeError, f"ExternalStream: {stream_ptr:#x} is not a stream"
            )
        wanted = _get_device_index(device, optional=True)
        if device is not None and wanted not in (-1, index):
            raise coded(
                RuntimeError,
                f"ExternalStream: {stream_ptr:#x} is a stream of npu:{index}, not of "
                f"npu:{wanted}",
            )
        return super().__new__(cls, stream_id=stream_id, device_index=index)


class ExternalEvent:
    """A flag that one stream raises and another waits for.

    wait() may come before record(), and then holds the stream until the record. A wait
    takes the flag down, and so does reset(), so each wait needs a record of its own.
    Streams run these in order with their other work. No call waits on the host, except
    wait() on a SyncLaunchStream, which has no queue.
    """

    def __init__(self) -> None:
        _lazy_init()
        self._flag = _C.new_flag()
        self._free = weakref.finalize(self, _C.free_flag, self._flag)
        self._free.atexit = False
        self._lock = threading.Lock()
        self._awaited = False  # a wait is queued, and no record after it

    @staticmethod
    def _stream(stream: torch.Stream | None) -> tuple[int, int]:
        if stream is None:
            stream = current_stream()
        if not isinstance(stream, torch.Stream) or stream.device_type != 20:
            raise coded(TypeError, f"expected a stream of an npu, but got {stream!r}")
        return stream.device_index, stream.stream_id

    def record(self, stream: torch.Stream | None = None) -> None:
        """Raise the flag when the stream, by default the current one, gets here.

        If the stream has failed by then, or fails before it gets here, the waiting
        stream fails too, and its error names this one.
        """
        where = self._stream(stream)
        with self._lock:
            try:
                self._keep_if(_C.flag_up(*where, self._flag, self._awaited))
            except DeviceError:
                self._awaited = False  # the wait ends with this error
                raise
            self._awaited = False

    def wait(self, stream: torch.Stream | None = None) -> None:
        """Hold the stream until the flag is up, then take it down.

        A second wait without a record() or reset() in between could never end. It
        raises RuntimeError and queues nothing.
        """
        where = self._stream(stream)
        with self._lock:
            if self._awaited:
                raise coded(
                    RuntimeError,
                    "ExternalEvent: wait() twice with no record() or reset() between",
                )
            self._awaited = True
        try:
            self._keep_if(_C.flag_take(*where, self._flag))
        except BaseException:
            self._awaited = False
            raise

    def reset(self, stream: torch.Stream | None = None) -> None:
        """Take the flag down when the stream gets here, and allow another wait."""
        where = self._stream(stream)
        with self._lock:
            self._keep_if(_C.flag_down(*where, self._flag))
            self._awaited = False

    def _keep_if(self, captured: bool) -> None:
        """Keep the flag for good if a graph uses it: replays may come at any time."""
        if captured:
            self._free.detach()

    def __repr__(self) -> str:
        return f"<torch.npu.ExternalEvent {self._flag:#x}>"
