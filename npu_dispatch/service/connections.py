"""Clients that connect and say nothing, which must not take others' room.

uvicorn lets a client stay for as long as it likes that has sent no whole request.
uvicorn's own limit of connections would answer 503 to everybody, also to a
supervisor that asks `/livez` and would then restart the service.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["Connection"]


class Connection(H11Protocol):
    """One client. The oldest that have not sent a request make room for others."""

    MOST_SILENT: ClassVar = 128
    SILENT_SECONDS: ClassVar = 15.0
    # A request needs a moment to arrive, and several clients may be let in
    # before the first of them is heard.
    SOONEST_SECONDS: ClassVar = 1.0
    MOST: ClassVar = 768  # of all kinds, since descriptors are limited
    # Those that owe a request, in the order in which they began to.
    _silent: ClassVar[dict[Connection, tuple[float, asyncio.TimerHandle]]] = {}

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._owes_a_request()

    def _owes_a_request(self) -> None:
        self._owes_nothing()
        if self.transport.is_closing():
            return
        now = self.loop.time()
        if len(self._silent) >= self.MOST_SILENT:
            oldest, (since, _) = next(iter(self._silent.items()))
            if now - since > self.SOONEST_SECONDS or len(self._silent) > self.MOST:
                oldest._owes_nothing()
                oldest.transport.abort()
        later = self.loop.call_later(self.SILENT_SECONDS, self.transport.abort)
        self._silent[self] = now, later

    def _owes_nothing(self) -> None:
        if found := self._silent.pop(self, None):
            found[1].cancel()

    def handle_events(self) -> None:
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._owes_nothing()

    def on_response_complete(self) -> None:
        self._owes_a_request()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._owes_nothing()
        super().connection_lost(exc)
