"""Streams and events, as torch.cuda names them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NoReturn, Self, cast

import torch

from npu_dispatch import _C
from npu_dispatch.npu._codes import coded
from npu_dispatch.npu._index import Device, _get_device_index
from npu_dispatch.npu._lazy import _lazy_init

__all__ = [
    "Event",
    "Stream",
    "StreamContext",
    "SyncLaunchStream",
    "clear_error",
    "reset_device",
    "current_stream",
    "default_stream",
    "set_stream",
    "stream",
    "stream_error",
]

_DEVICE_TYPE = 20  # c10::DeviceType::PrivateUse1
_preprocessing: set[tuple[int, int]] = set()


def _resolve(device: Device) -> int:
    """Return a checked device index; None and negative mean the current one."""
    _lazy_init()
    index = _get_device_index(device, optional=True)
    if index < 0:
        return _C.current_device()
    if index >= _C.device_count():
        raise coded(
            RuntimeError,
            f"invalid device id {index}: there are {_C.device_count()} devices",
        )
    return index


class _StreamMethods(torch.Stream):
    """What Stream and SyncLaunchStream share."""

    @property
    def priority(self) -> int:
        """0 or -1. Normal streams give way, between tasks, where urgent ones (-1)
        need all cores of their device; none waits for them for ever."""
        return _C.stream_priority(self.device_index, self.stream_id)

    @property
    def npu_stream(self) -> int:
        """A number that names the stream in this process; 0 for npu:0's default."""
        return (self.device_index << 32) | self.stream_id

    def drained_handle(self) -> int:
        """Wait for the stream's work, then return `npu_stream`.

        For code that uses the stream's memory by itself, past its queue. Counted
        as a wait with the reason raw_handle; submit() keeps the order for nothing.
        Raises the stream's error if its work has failed.
        """
        _C.drain_stream(self.device_index, self.stream_id)
        return self.npu_stream

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.npu_stream)

    def wait_event(self, event: Any) -> None:
        """Make later work of this stream wait for the event. Returns at once."""
        event.wait(self)

    def wait_stream(self, stream: torch.Stream) -> None:
        """Make later work of this stream wait for what `stream` has been given."""
        super().wait_stream(stream)

    def set_data_preprocess_stream(
        self, is_data_preprocess_stream: bool = False
    ) -> None:
        """Mark this stream as one for data preprocessing, or not. Kept as a flag."""
        if not isinstance(is_data_preprocess_stream, bool):
            raise coded(
                TypeError,
                "is_data_preprocess_stream must be a bool, but got "
                f"{type(is_data_preprocess_stream).__name__}",
            )
        key = self.device_index, self.stream_id
        if is_data_preprocess_stream:
            _preprocessing.add(key)
        else:
            _preprocessing.discard(key)

    @property
    def is_data_preprocess_stream(self) -> bool:
        """Whether the stream is so marked."""
        return (self.device_index, self.stream_id) in _preprocessing

    def record_event(self, event: Any = None) -> Any:
        """Record `event`, or a new one, at the end of the work submitted so far."""
        if event is None:
            event = Event()
        event.record(self)
        return event

    def submit(
        self,
        fn: Callable[..., object],
        *tensors: torch.Tensor,
        writes: Sequence[torch.Tensor] | None = None,
        name: str | None = None,
    ) -> None:
        """Call `fn(*views)` in order with this stream's work. Returns at once.

        The views are host tensors over the memory of `tensors`, valid during the
        call; without tensors it is a host callback. `writes`: which of them fn
        changes; all unless said, and a race checker believes it. An exception
        makes the stream fail with it. fn must not wait for the device. `name`:
        what errors and traces call it. In a captured graph it is a node, called
        at each replay. TypeError, ValueError: wrong arguments.
        """
        from npu_dispatch.npu import _submit

        _submit.submit(self, fn, tensors, writes, name)

    def __await__(self) -> Generator[Any, Any, None]:
        """Resume once the work submitted so far is done; raise if it failed."""
        from npu_dispatch.npu import _await

        return _await.on_stream(self)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise coded(
            TypeError,
            f"cannot pickle {self!r}: it is a queue of this process. Make a stream in "
            "the process that uses it, and order them by an Event(interprocess=True)",
        )

    def __repr__(self) -> str:
        return (
            f"<torch.npu.{type(self).__name__} device=npu:{self.device_index} "
            f"npu_stream={self.npu_stream:#x}>"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, torch.Stream):
            return NotImplemented
        return (self.device_type, self.device_index, self.stream_id) == (
            other.device_type,
            other.device_index,
            other.stream_id,
        )

    def __ne__(self, other: object) -> bool:
        # torch.Stream's own says False of everything that is no stream.
        return not self == other

    def __hash__(self) -> int:
        return hash((self.device_index, self.stream_id))


class Stream(_StreamMethods):
    """A queue of work on a device.

    Taken round robin from a pool of 32 (STREAMS_PER_DEVICE) per device and
    priority class, so that the 33rd object is the first stream again.
    """

    def __new__(
        cls,
        device: Device = None,
        priority: int = 0,
        *,
        stream_id: int | None = None,
        device_index: int | None = None,
        device_type: int = _DEVICE_TYPE,
    ) -> Self:
        if stream_id is not None:
            index = _resolve(device if device_index is None else device_index)
            if device_type != _DEVICE_TYPE:
                raise coded(
                    RuntimeError,
                    f"device_type must be {_DEVICE_TYPE}, but got {device_type!r}",
                )
            if not -(2**63) <= stream_id < 2**63:
                raise coded(
                    OverflowError, f"stream_id {stream_id} does not fit into 64 bits"
                )
            _C.stream_priority(index, stream_id)  # raises when there is no such one
            return super().__new__(
                cls, stream_id=stream_id, device_index=index, device_type=device_type
            )
        index = _resolve(device)
        return super().__new__(
            cls, device=torch.device("npu", index), priority=priority
        )

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Return the lowest and the highest priority."""
        return 0, -1


class SyncLaunchStream(_StreamMethods):
    """A stream without a queue: the calling thread launches its work itself.

    A path that still works when a queue is stuck. Not a torch.npu.Stream.
    `priority` is accepted and has no effect.
    """

    def __new__(cls, device: Device = None, priority: int = 0) -> Self:
        index = _resolve(device)
        return super().__new__(
            cls,
            stream_id=_C.new_sync_launch_stream(index),
            device_index=index,
            device_type=_DEVICE_TYPE,
        )


class Event(torch.Event):
    """A mark in a stream.

    enable_timing: elapsed_time() and recorded_time() work. blocking: host waits
    sleep at once instead of spinning first. interprocess: another process can
    wait for it, through ipc_handle(); excludes enable_timing. Nothing is made on
    a device before the first record(); later ones must be on the same device.
    """

    def __new__(
        cls,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
    ) -> Self:
        if not _C.device_count():
            raise coded(RuntimeError, "No NPU devices are available")
        if interprocess and enable_timing:
            raise coded(
                RuntimeError, "an interprocess event cannot have enable_timing=True"
            )
        if interprocess and cls is Event:
            from npu_dispatch.npu._shared_event import SharedEvent

            return cast(Self, SharedEvent())
        if blocking and cls is Event:
            return cast(Self, _BlockingEvent(enable_timing, blocking=True))
        return super().__new__(
            cls,
            device="npu",
            enable_timing=enable_timing,
            blocking=blocking,
            interprocess=interprocess,
        )

    @property
    def npu_event(self) -> int:
        """The event's number; 0 before the first record."""
        return self.event_id

    @property
    def device(self) -> torch.device | None:  # type: ignore[override]
        """The device it was recorded on; None before the first record."""
        return super().device if self.event_id else None

    def __await__(self) -> Generator[Any, Any, None]:
        """Resume once the recorded work is done; raise if it failed."""
        from npu_dispatch.npu import _await

        return _await.on_event(self)

    def elapsed_time(self, end_event: torch.Event) -> float:
        """Return the milliseconds from this event to `end_event`. Waits for both."""
        if not (self.event_id and end_event.event_id):
            raise coded(
                RuntimeError,
                "Both events must be recorded before calculating elapsed time.",
            )
        began, ended = map(_C.event_time_ns, (self.event_id, end_event.event_id))
        return (ended - began) / 1e6

    def recorded_time(self) -> int:
        """Return when the stream reached the event: CLOCK_MONOTONIC, nanoseconds.

        Waits for the event. Needs enable_timing=True and a record.
        """
        return _C.event_time_ns(self.event_id)

    def __reduce_ex__(self, protocol: object) -> Any:
        raise coded(
            TypeError,
            f"cannot pickle {self!r}: other processes see an Event(interprocess=True) "
            "only",
        )

    def ipc_handle(self) -> bytes:
        """Return what from_ipc_handle() of another process needs."""
        raise coded(RuntimeError, "ipc_handle() needs an event with interprocess=True")

    @classmethod
    def from_ipc_handle(cls, device: Device, handle: bytes) -> Event:
        """Return the event of another process. A bad handle is a RuntimeError."""
        from npu_dispatch.npu._shared_event import SharedEvent

        return SharedEvent.opened(_resolve(device), handle)


class _BlockingEvent(Event):
    """An event whose host waits sleep at once and leave the processor to others."""

    def synchronize(self) -> None:
        _C.event_sleep_until_done(self.event_id)


def _of_id(index: int, stream_id: int) -> Stream:
    return Stream(stream_id=stream_id, device_index=index)


def current_stream(device: Device = None) -> Stream:
    """Return the calling thread's stream on a device."""
    index = _resolve(device)
    return _of_id(index, _C.current_stream(index))


def default_stream(device: Device = None) -> Stream:
    """Return the stream a thread starts on."""
    return _of_id(_resolve(device), 0)


def set_stream(stream: torch.Stream | None) -> None:
    """Move the calling thread to a stream and its device. None does nothing."""
    if stream is None:
        return
    if not isinstance(stream, torch.Stream):
        raise coded(TypeError, f"expected a stream of an npu, but got {stream!r}")
    _C.set_device(stream.device_index)
    _C.set_current_stream(stream.device_index, stream.stream_id)


class StreamContext:
    """A context on another stream, and on its device. None changes nothing."""

    def __init__(self, stream_ctx: torch.Stream | None) -> None:
        _lazy_init()
        self.stream = stream_ctx
        self._previous: list[list[tuple[int, int]]] = []  # one of each entry

    def __enter__(self) -> None:
        if self.stream is None:
            return
        if not isinstance(self.stream, torch.Stream):
            raise coded(
                TypeError, f"expected a stream of an npu, but got {self.stream!r}"
            )
        here, there = _C.current_device(), self.stream.device_index
        # The last one restored is the device that was current.
        self._previous.append(
            [
                (index, _C.current_stream(index))
                for index in dict.fromkeys((there, here))
            ]
        )
        set_stream(self.stream)

    def __exit__(self, *exc: object) -> None:
        for index, stream_id in self._previous.pop() if self._previous else ():
            _C.set_device(index)
            _C.set_current_stream(index, stream_id)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Return a context on `stream`."""
    return StreamContext(stream)


def stream_error(stream: torch.Stream | None = None) -> Mapping[str, Any] | None:
    """Return what made a stream fail, or None. The current stream by default.

    Never waits and never raises: a task still queued may fail later.
    """
    stream = current_stream() if stream is None else stream
    return _C.stream_error(stream.device_index, stream.stream_id)


def clear_error(stream: torch.Stream | None = None) -> None:
    """Let a failed stream take work again. Waits until its queue is empty.

    Results of tasks dropped since the failure are undefined.
    """
    stream = current_stream() if stream is None else stream
    _C.clear_error(stream.device_index, stream.stream_id)


def reset_device(device: torch.device | int | str | None = None) -> None:
    """Let a device's failed streams take work again, as clear_error() does.

    Waits until its queues are empty. Memory and streams stay; results of tasks
    dropped since a failure are undefined.
    """
    _C.reset_device(_get_device_index(device, optional=True))
