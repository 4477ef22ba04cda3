"""One reading of the counters a second, for all clients together."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from npu_dispatch.observe.judge.rates import History, Reading
from npu_dispatch.observe.segment.listing import ProcessView
from npu_dispatch.observe.serve.options import ServiceConfig
from npu_dispatch.observe.serve.scrapes import Scrapes
from npu_dispatch.observe.serve.snapshot import point, process_values
from npu_dispatch.observe.serve.telemetry import Telemetry

_SMOOTH_S = 2.0  # the least time that rates are taken over, lest they flicker
_HISTORY = 600  # points, of
_APART_S = 0.9  # or more: ten minutes of the default interval
# /livez gives up on readings that are older than the longer of these.
_STALE_S, _STALE_INTERVALS = 30.0, 10
_log = logging.getLogger(__name__)


class Watcher:
    """Reads the counters on one event loop, from the first request on."""

    def __init__(self, config: ServiceConfig) -> None:
        self.scrapes = Scrapes(config)
        self.telemetry = Telemetry()
        self.views: tuple[ProcessView, ...] = ()
        self.snapshot: dict[str, Any] = {
            "time": 0.0,
            "tick": 0.0,
            "interval": config.interval,
            "processes": [],
            "killed": [],
        }
        self.newest = json.dumps(self.snapshot).encode()  # for all who ask
        self._history: deque[tuple[float, bytes]] = deque(maxlen=_HISTORY)
        self._interval, self._hang_seconds = config.interval, config.hang_seconds
        self._past = History(_SMOOTH_S)
        self._news = asyncio.Condition()
        self._number = 0
        self._told = ""  # the failure that was logged last
        self._task: asyncio.Task[None] | None = None
        self._first = asyncio.Lock()
        self._closed = asyncio.Event()

    async def ready(self) -> None:
        """Return once there is a reading that is not older than two intervals."""
        async with self._first:
            if self._task is None and not self._closed.is_set():
                await self._read_guarded()
                self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while not self._closed.is_set():
            due = time.monotonic() + self._interval
            await asyncio.sleep(self._interval)
            self.telemetry.lag.observe(max(0.0, time.monotonic() - due))
            await self._read_guarded()

    def age(self) -> float:
        """Return how many seconds ago the counters were last read."""
        return time.monotonic() - self.telemetry.last_reading

    def is_stale(self) -> bool:
        """Return whether readings have failed for so long that nobody can use them."""
        return self.age() > max(_STALE_S, _STALE_INTERVALS * self._interval)

    async def _read_guarded(self) -> None:
        """Read once. A failure is logged and counted; the next turn tries again."""
        try:
            await self._read()
        except Exception as error:
            self.telemetry.failed_readings += 1
            if repr(error) != self._told:
                self._told = repr(error)
                _log.exception("the counters could not be read")
        else:
            self._told = ""
            self.telemetry.last_reading = time.monotonic()

    async def _read(self) -> None:
        # This runs in a thread, as /proc can be slow and clients should not notice.
        await asyncio.to_thread(self._look)
        async with self._news:
            self._number += 1
            self.newest = json.dumps(self.snapshot).encode()
            tick = self.snapshot["tick"]
            if not self._history or tick - self._history[-1][0] >= _APART_S:
                kept = json.dumps(point(self.snapshot)).encode()
                self._history.append((tick, kept))
            self._news.notify_all()

    def _look(self) -> None:
        with self.scrapes.refreshed() as processes:
            self.views = processes.views
            readings = [
                Reading(view, view.reader.waits_by_site(), view.reader.ops())
                for view in self.views
            ]
            killed = self.scrapes.killed.look()
        self._past.note(readings)
        self.snapshot = {
            "time": time.time(),
            "tick": time.monotonic(),
            "interval": self._interval,
            "processes": [
                process_values(self._past.before(now.view), now, self._hang_seconds)
                for now in readings
            ],
            "killed": killed,
        }

    async def events(self) -> AsyncIterator[tuple[str, bytes]]:
        """Yield the history, the newest snapshot, then each new one, until close()."""
        await self.ready()
        number = self._number
        now, newest = self.snapshot["tick"], self.newest
        past = [data for tick, data in self._history if tick < now]
        yield "history", b"[" + b",".join(past) + b"]"
        yield "snapshot", newest
        while not self._closed.is_set():
            async with self._news:
                await self._news.wait_for(
                    lambda: self._closed.is_set() or self._number != number  # noqa: B023
                )
                if self._closed.is_set():
                    return
                number = self._number
                data = self.newest
            yield "snapshot", data

    async def close(self) -> None:
        """End the readings and every events()."""
        self._closed.set()
        async with self._news:
            self._news.notify_all()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
