"""How `await event` and `await stream` resume: one file descriptor per loop.

A launcher that retires a number somebody awaits pushes a completion into the
loop's port, and writes the port's descriptor if it was empty. The loop reads
it, resolves a bounded number of futures, and goes on with its other work.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import weakref
from collections.abc import Generator
from typing import Any

import torch

from npu_dispatch import _C

# Futures resolved in one turn of the loop.
_BATCH = 128

Point = tuple[int, int, int]  # device, stream, number
Awaiting = Generator[Any, Any, None]


class _Bridge:
    """One loop's port, and the futures of those who wait for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._port = _C.CompletionPort()
        self._futures: dict[int, asyncio.Future[None]] = {}
        self._tokens = itertools.count()
        self._turn_is_taken = False  # no further batch in this turn of the loop
        loop.add_reader(self._port.fileno(), self._readable)

    def add(
        self, loop: asyncio.AbstractEventLoop, point: Point
    ) -> asyncio.Future[None] | None:
        """Return a future that ends when the point is reached; None if it has been."""
        token = next(self._tokens)
        if not self._port.add(*point, token):
            return None
        future = self._futures[token] = loop.create_future()
        return future

    def _readable(self) -> None:
        # The descriptor stays readable, so a later turn takes what this one leaves.
        if not self._turn_is_taken and self._port.resolve(self._futures, _BATCH):
            self._turn_is_taken = True
            asyncio.get_running_loop().call_soon(self._deliver)

    def _deliver(self) -> None:
        more = self._port.resolve(self._futures, _BATCH)
        # The descriptor may become readable in this very turn, behind this call.
        asyncio.get_running_loop().call_soon(self._deliver if more else self._rest)

    def _rest(self) -> None:
        self._turn_is_taken = False


# A bridge does not refer to its loop, or neither would ever be freed.
_bridges: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Bridge] = (
    weakref.WeakKeyDictionary()
)
_making = threading.Lock()


def _bridge(loop: asyncio.AbstractEventLoop) -> _Bridge:
    bridge = _bridges.get(loop)
    if bridge is not None:
        return bridge
    with _making:
        # No loop tells when it is closed, so closed ones are looked for here.
        for other in list(_bridges):
            if other.is_closed():
                del _bridges[other]
        bridge = _bridges[loop] = _Bridge(loop)
    return bridge


def _at_once() -> Awaiting:
    return
    yield


# None of these is a generator itself: a garbage collection walks all the thousands of
# waiting coroutines, and each frame between a task and its future would be one more.
def on_number(point: Point) -> Awaiting:
    """Resume once a stream has retired a number of tasks.

    Raises the error of the stream if one of those tasks failed.
    """
    loop = asyncio.get_running_loop()
    future = _bridge(loop).add(loop, point)
    return _at_once() if future is None else future.__await__()


def on_stream(stream: torch.Stream) -> Awaiting:
    """Resume once the work submitted to the stream so far is done."""
    index, stream_id = stream.device_index, stream.stream_id
    return on_number((index, stream_id, _C.stream_tail(index, stream_id)))


def on_event(event: torch.Event) -> Awaiting:
    """Resume once the work before the event's record is done; at once without one."""
    point = _C.event_point(event.event_id)
    return _at_once() if point is None else on_number(point)
