"""Streams: queues of work on a device, as torch.cuda has them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator, Sequence
from typing import Any, NoReturn, Self

import torch

from npu_dispatch import _C
from npu_dispatch.npu.runtime.codes import coded, expect
from npu_dispatch.npu.runtime.devices import Device, is_npu, resolve
from npu_dispatch.npu.streams import awaiting
from npu_dispatch.npu.streams.event import Event

_DEVICE_TYPE = 20  # c10::DeviceType::PrivateUse1
_preprocessing: set[tuple[int, int]] = set()


# The call site that took a stream from its pool last, by device and stream.
_taken_at: dict[tuple[int, int], int] = {}


def note_stream(device: int, stream_id: int) -> None:
    """Remember that the calling line has made a stream."""
    _taken_at[device, stream_id] = _C.current_call_site()


def line_of_stream(device: int, stream_id: int) -> str:
    """Return the line that made a stream, or "" where it is not known.

    A stream of a pool belongs to the line that took it last.
    """
    site = _taken_at.get((device, stream_id), 0)
    return _C.call_line(site) if site else ""


def _check_submitted(stream: torch.Stream, i: int, tensor: torch.Tensor) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(
            f"submit() passes tensors on, but argument {i} is a "
            f"{type(tensor).__name__}; bind other values with functools.partial"
        )
    if tensor.layout != torch.strided:
        raise TypeError(
            f"submit() passes strided tensors on, but argument {i} has layout "
            f"{tensor.layout}; pass its parts, such as values()"
        )
    here = torch.device("npu", stream.device_index)
    if tensor.device not in (here, torch.device("cpu")):
        raise ValueError(
            f"argument {i} is on {tensor.device}, but the stream is of {here}"
        )


class _StreamMethods(torch.Stream):
    """What Stream and SyncLaunchStream share."""

    @property
    def priority(self) -> int:
        """The priority, 0 (normal) or -1 (urgent).

        Normal streams give way, between tasks, where urgent ones need all cores of
        their device, but none waits for ever.
        """
        return _C.stream_priority(self.device_index, self.stream_id)

    @property
    def npu_stream(self) -> int:
        """A number that names the stream in this process; 0 for npu:0's default."""
        return (self.device_index << 32) | self.stream_id

    def drained_handle(self) -> int:
        """Wait for the stream's work, then return `npu_stream`.

        This is for code that uses the stream's memory by itself, past its queue. It
        counts as a wait with the reason raw_handle; submit() keeps the order without
        a wait. Raises the stream's error if its work has failed.
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
        """Mark this stream as one for data preprocessing, or not. It is a flag only."""
        expect(is_data_preprocess_stream, bool, "is_data_preprocess_stream")
        key = self.device_index, self.stream_id
        if is_data_preprocess_stream:
            _preprocessing.add(key)
        else:
            _preprocessing.discard(key)

    @property
    def is_data_preprocess_stream(self) -> bool:
        """Whether the stream is marked as one for data preprocessing."""
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
        call; without tensors, fn is a host callback. `writes` says which of them fn
        changes, by default all, and the race sanitizer relies on it. Gradients are off
        inside fn (torch.no_grad()); what it computes is no part of autograd's graph. An
        exception makes the stream fail with it. fn must not wait for the device. Errors
        and traces call it `name`. In a captured graph the call is a node, which each
        replay runs. Wrong arguments raise TypeError or ValueError.
        """
        if not callable(fn):
            raise TypeError(f"submit() needs a function, but got {type(fn).__name__}")
        for i, tensor in enumerate(tensors):
            _check_submitted(self, i, tensor)
        changed = {id(t) for t in (tensors if writes is None else writes)}
        if unknown := changed - {id(t) for t in tensors}:
            raise ValueError(
                f"writes names {len(unknown)} tensor(s) that fn is not given: list "
                "them among the tensors too"
            )
        for tensor in tensors:
            if is_npu(tensor):
                tensor.record_stream(self)
                if id(tensor) in changed and not tensor.is_inference():
                    # This tells autograd if a tensor that it has saved is overwritten.
                    torch.autograd.graph.increment_version(tensor)
        _C.submit(
            self.device_index,
            self.stream_id,
            fn,
            name or getattr(fn, "__qualname__", None) or type(fn).__name__,
            list(tensors),
            [id(t) in changed for t in tensors],
        )

    def __await__(self) -> Generator[Any, Any, None]:
        """Resume once the work submitted so far is done; raise if it failed."""
        return awaiting.on_stream(self)

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
        # torch.Stream's own comparison says False for everything that is no stream.
        return not self == other

    def __hash__(self) -> int:
        return hash((self.device_index, self.stream_id))


class Stream(_StreamMethods):
    """A queue of work on a device.

    It is taken round robin from a pool of 32 (STREAMS_PER_DEVICE) per device and
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
            index = resolve(device if device_index is None else device_index)
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
        index = resolve(device)
        made = super().__new__(
            cls, device=torch.device("npu", index), priority=priority
        )
        note_stream(index, made.stream_id)
        return made

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Return the lowest and the highest priority."""
        return 0, -1


class SyncLaunchStream(_StreamMethods):
    """A stream without a queue, whose work the calling thread launches itself.

    So it still works when a queue is stuck. It is not a torch.npu.Stream. `priority`
    is accepted and has no effect.
    """

    def __new__(cls, device: Device = None, priority: int = 0) -> Self:
        index = resolve(device)
        return super().__new__(
            cls,
            stream_id=_C.new_sync_launch_stream(index),
            device_index=index,
            device_type=_DEVICE_TYPE,
        )


def set_strict_stream_pools(strict: bool) -> None:
    """Choose whether a pool of streams raises RuntimeError when it is used up.

    When this is off, the 33rd Stream object of a device and priority class is the
    first stream again. It is off at first, unless NPU_STRICT_STREAMS=1.
    """
    expect(strict, bool, "strict")
    _C.set_strict_pools(strict)
