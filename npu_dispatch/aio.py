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
import contextlib
import functools
import gc
import types
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch

from npu_dispatch import _C, npu
from npu_dispatch.npu.streams import awaiting

__all__ = ["QueueLimit", "run", "synchronize", "to_host", "wait"]

T = TypeVar("T")

# A result that leads to more objects than so leads to the whole program.
_MOST_OBJECTS = 10_000


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
    fn: Callable[..., T],
    /,
    *args: Any,
    stream: torch.Stream | None = None,
    **kwargs: Any,
) -> T:
    """Return `fn(*args, **kwargs)` once the device has computed it.

    `fn` is called at once, on the loop's thread, so it may launch but must not
    wait. With a `stream` its work runs there, after what the current stream has
    been given, and the result may be used on the current stream: its tensors are
    found in containers, dataclasses, attributes and whatever else Python's garbage
    collector follows. Raises RuntimeError where the result refers to more than 10,000
    objects. What `fn` and its arguments refer to is kept until the work is done, also
    where the await is cancelled.
    """
    if stream is None:
        result = fn(*args, **kwargs)
        await npu.current_stream()
        return result
    here = npu.current_stream(stream.device)
    try:
        with npu.stream(stream):
            stream.wait_stream(here)
            result = fn(*args, **kwargs)
        await wait(stream)
    except BaseException:
        # The device goes on. A stream that has failed does not: it takes no task.
        with contextlib.suppress(Exception):
            point = stream.device_index, stream.stream_id
            _C.submit(
                *point, functools.partial(_drop, fn, args, kwargs), "aio.run", [], []
            )
        raise
    for tensor in _tensors(result):
        tensor.record_stream(here)
    return result


def _drop(*kept: object) -> None:
    """Let go of what a stream's work used, as the task that follows this work."""


# Torch's pytree does not look into dataclasses and other objects.
def _tensors(result: object) -> Iterator[torch.Tensor]:
    """Yield the tensors on `npu` that a result refers to."""
    ahead, seen = [result], {id(result)}
    for value in ahead:
        if isinstance(value, torch.Tensor):
            if value.device.type == "npu":
                yield value
            continue
        if isinstance(value, type | types.ModuleType):
            continue
        if isinstance(value, types.FunctionType):  # without the globals
            inside = [value.__closure__, value.__defaults__, value.__dict__]
        else:
            inside = gc.get_referents(value)
        for item in inside:
            if id(item) not in seen:
                seen.add(id(item))
                ahead.append(item)
        if len(ahead) > _MOST_OBJECTS:
            raise RuntimeError(
                f"fn returned a {type(result).__name__} that refers to more than "
                f"{_MOST_OBJECTS:,} objects, too many to look for tensors of the "
                "stream: let it return the tensors alone, or run it without stream="
            )


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

    async def __aexit__(self, *error: object) -> None:
        pass
