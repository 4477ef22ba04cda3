"""Device work in an asyncio program, which is awaited like a socket.

    await event                  until the work before the event's record is done
    await stream                 until all that was submitted to it is done
    y = await aio.to_host(x)     gives x in host memory
    y = await aio.run(f, x)      gives f(x) once it has been computed
    async with aio.QueueLimit(64): ...

`asyncio.timeout` and cancellation end the wait, not the work: the device goes
on, and the memory involved stays valid until it is done. If the work failed,
the await raises its error, which also stays with the stream, as it does for
every other wait. The loop's thread never waits for the device here.

`with torch.npu.stream(s)` belongs to the thread, not to the asyncio task: do
not await inside of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, TypeVar

import torch

from npu_dispatch import _C, npu
from npu_dispatch.npu.streams import awaiting

__all__ = ["QueueLimit", "run", "synchronize", "to_host", "wait"]

T = TypeVar("T")


class _Number:
    """An awaitable that ends when a stream has done its tasks up to a number."""

    def __init__(self, *point: int) -> None:
        device, stream, number = point
        self._point = device, stream, number

    def __await__(self) -> awaiting.Awaiting:
        return awaiting.on_number(self._point)


async def wait(what: torch.Event | torch.Stream) -> None:
    """Await an event or a stream of `npu`, of torch's generic classes as well."""
    if isinstance(what, npu.Event):
        return await what
    if what.device is None or what.device.type != "npu":
        raise ValueError(
            f"wait() is for events and streams of npu, got one of {what.device}"
        )
    if isinstance(what, torch.Stream):
        point = what.device_index, what.stream_id
        return await _Number(*point, _C.stream_tail(*point))
    reached = _C.event_point(what.event_id)
    return None if reached is None else await _Number(*reached)


async def synchronize(device: torch.device | int | str | None = None) -> None:
    """Await everything submitted so far to all streams of a device."""
    index = npu.current_stream(device).device_index
    for point in _C.device_tails(index):
        await _Number(*point)


async def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy in pinned host memory, or the tensor itself if it is on `cpu`.

    The copy takes place after all that the current stream has been given.
    """
    if tensor.device.type == "cpu":
        return tensor
    stream = npu.current_stream(tensor.device)
    tensor = tensor.resolve_conj().resolve_neg()
    host = torch.empty_like(tensor, device="cpu", pin_memory=True)
    if host.stride() != tensor.stride():
        # This is a view with gaps, and only equal layouts are copied without waiting.
        tensor = torch.empty_like(tensor).copy_(tensor)
    host.copy_(tensor, non_blocking=True)
    await stream
    return host


async def run(
    fn: Callable[..., T], *args: Any, stream: torch.Stream | None = None
) -> T:
    """Return `fn(*args)` once the device has computed it.

    `fn` is called at once, on the loop's thread, so it may launch but must not
    wait. With a `stream` its work runs there, after what the current stream has
    been given, and the result may be used on the current stream.
    """
    if stream is None:
        result = fn(*args)
        await npu.current_stream()
        return result
    here = npu.current_stream(stream.device)
    with npu.stream(stream):
        stream.wait_stream(here)
        for tensor in _tensors(args):
            tensor.record_stream(stream)
        result = fn(*args)
    await wait(stream)
    for tensor in _tensors(result):
        tensor.record_stream(here)
    return result


def _tensors(value: object) -> Iterator[torch.Tensor]:
    """Yield the tensors on `npu` in nested tuples, lists and dicts."""
    if isinstance(value, torch.Tensor):
        if value.device.type == "npu":
            yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


class QueueLimit:
    """A semaphore that counts the unfinished tasks in a stream's queue.

    `async with limit:` enters once fewer than `depth` tasks of the stream are
    unfinished. Those who wait enter in the order in which they asked, and what one
    body submits before its next await is counted before the next body begins. So a
    program can take more requests than the queue has room for, and a launch never
    blocks the loop. Without a `stream` it is the one that is current at entry.
    """

    def __init__(self, depth: int, stream: torch.Stream | None = None) -> None:
        if depth < 1:
            raise ValueError(f"depth must be at least 1, got {depth}")
        self.depth = depth
        self._stream = stream
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> None:
        async with self._turn:
            stream = self._stream or npu.current_stream()
            point = stream.device_index, stream.stream_id
            # Asked again after each wait, as others may submit to the stream.
            while True:
                wanted = _C.stream_tail(*point) - self.depth + 1
                if _C.stream_retired(*point) >= wanted:
                    return
                await _Number(*point, wanted)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass
