"""The calling thread's stream: contexts on another one, its failure, and a sleep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from npu_dispatch import _C
from npu_dispatch.npu.runtime.codes import coded, expect
from npu_dispatch.npu.runtime.devices import Device, _get_device_index, resolve
from npu_dispatch.npu.runtime.start import _lazy_init
from npu_dispatch.npu.streams.stream import Stream


def _of_id(index: int, stream_id: int) -> Stream:
    return Stream(stream_id=stream_id, device_index=index)


def current_stream(device: Device = None) -> Stream:
    """Return the calling thread's stream on a device."""
    index = resolve(device)
    return _of_id(index, _C.current_stream(index))


def default_stream(device: Device = None) -> Stream:
    """Return the stream that a thread starts on."""
    return _of_id(resolve(device), 0)


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
    """Return the error that made a stream fail, or None.

    `stream` is the current one by default. The call never waits and never raises; a
    task that is still queued may fail later. Where a wait for another stream failed,
    "cause" is the error of the task that failed first; else None.
    """
    stream = current_stream() if stream is None else stream
    return _C.stream_error(stream.device_index, stream.stream_id)


def clear_error(stream: torch.Stream | None = None) -> None:
    """Wait until a failed stream's queue is empty, then let it take work again.

    Results of tasks dropped since the failure are undefined.
    """
    stream = current_stream() if stream is None else stream
    _C.clear_error(stream.device_index, stream.stream_id)


def reset_device(device: torch.device | int | str | None = None) -> None:
    """Let a device's failed streams take work again, as clear_error() does.

    It waits until the device's queues are empty. Memory and streams stay; results of
    tasks dropped since a failure are undefined.
    """
    _C.reset_device(_get_device_index(device, optional=True))


def _sleep(cycles: int) -> None:
    """Keep the current stream busy for `cycles` nanoseconds, as its clock has 1 GHz."""
    expect(cycles, int, "cycles")
    if cycles <= 0:
        raise coded(RuntimeError, f"cycles must be positive, but got {cycles}")
    _lazy_init()
    stream = current_stream()
    _C.queue_sleep(stream.device_index, stream.stream_id, cycles)
