"""Awaiting on trio, where a system task of the run reads the port's descriptor."""

from __future__ import annotations

import itertools

import trio

from npu_dispatch import _C

__all__ = ["is_running", "on_number", "sleep"]

_ALL = 1 << 30


class _Waiter:
    def __init__(self) -> None:
        self.reached = trio.Event()
        self.error: BaseException | None = None


class _Bridge:
    def __init__(self) -> None:
        self._port = _C.CompletionPort()
        self._waiters: dict[int, _Waiter] = {}
        self._tokens = itertools.count()
        trio.lowlevel.spawn_system_task(self._deliver)

    async def wait(self, device: int, stream: int, number: int) -> None:
        token = next(self._tokens)
        if not self._port.add(device, stream, number, token):
            return
        waiter = self._waiters[token] = _Waiter()
        await waiter.reached.wait()
        if waiter.error is not None:
            raise waiter.error

    async def _deliver(self) -> None:
        while True:
            await trio.lowlevel.wait_readable(self._port.fileno())
            for token, error in self._port.take(_ALL):
                waiter = self._waiters.pop(token)
                waiter.error = error
                waiter.reached.set()


_of_this_run: trio.lowlevel.RunVar[_Bridge] = trio.lowlevel.RunVar("npu_dispatch")


def is_running() -> bool:
    return trio.lowlevel.in_trio_run()


async def on_number(point: tuple[int, int, int]) -> None:
    try:
        bridge = _of_this_run.get()
    except LookupError:
        bridge = _Bridge()
        _of_this_run.set(bridge)
    await bridge.wait(*point)


async def sleep(seconds: float) -> None:
    await trio.sleep(seconds)
