"""The service as a program, which runs uvicorn on uvloop and stops gracefully.

Clients that let the service wait must not take others' room. uvicorn lets a client stay
for as long as it likes that has sent no whole request, or that reads no answer.
uvicorn's own limit of connections would answer 503 to everybody, also to a supervisor
that asks `/livez` and would then restart the service.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import socket
import stat
from pathlib import Path
from typing import Any, ClassVar

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from npu_dispatch.observe.serve.access import STAYING, Bucket, Limits
from npu_dispatch.observe.serve.app import ServiceConfig, create_app
from npu_dispatch.observe.serve.options import in_url, listen

_FILES = 4096
_GRACE_SECONDS = 5
_MAX_REQUEST_BYTES = 16 << 10
# Reading a request costs several times what refusing it unread does.
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Type: application/json\r\nContent-Length: 48\r\n\r\n"
    b'{"error": "more requests come than can be read"}'
)


class Connection(H11Protocol):
    """One client. The oldest that owe a request or do not read make room for others."""

    MOST: ClassVar = 768  # of all kinds, since descriptors are limited
    MOST_WAITED_FOR: ClassVar = 128
    # Requests a second of all clients that are read, and as many for /metrics;
    # those for /livez always are.
    MOST_READ: ClassVar = 400.0
    # And as many at once as this part of a second has: /livez waits for them.
    READ_SECONDS: ClassVar = 0.1
    SECONDS: ClassVar = 15.0  # without anything sent or read
    # A request needs a moment to arrive, and several clients may be let in
    # before the first of them is heard.
    SOONEST_SECONDS: ClassVar = 1.0
    # Those that the service waits for, in the order in which it began to.
    _waited_for: ClassVar[dict[Connection, tuple[float, asyncio.TimerHandle]]] = {}
    # Those that are being answered, except supervisors and listeners, oldest first.
    _answered: ClassVar[dict[Connection, None]] = {}
    _read: ClassVar[dict[bytes, Bucket]] = {}
    _refusal: asyncio.TimerHandle | None = None
    _unread = 0  # bytes of its answer, when the service began to wait

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._make_room()
        self._wait_for_it()

    def _make_room(self) -> None:
        """End the connection that is worth least, if there are too many."""
        full = len(self.connections) > self.MOST
        oldest, (since, _) = next(iter(self._waited_for.items()), (None, (0.0, None)))
        late = self.loop.time() - since > self.SOONEST_SECONDS
        if oldest and late and (full or len(self._waited_for) >= self.MOST_WAITED_FOR):
            oldest._end()
        elif full:
            (next(iter(self._answered), None) or oldest or self)._end()

    def _wait_for_it(self) -> None:
        """Wait until the client has sent a request, or read of its answer."""
        self._forget()
        self._unread = self.transport.get_write_buffer_size()
        # One that is closing may still have to read the end of its answer.
        if self._unread or not self.transport.is_closing():
            later = self.loop.call_later(self.SECONDS, self._late)
            self._waited_for[self] = self.loop.time(), later

    def _go_on(self) -> None:
        self._forget()
        if self.scope["path"] not in STAYING:
            self._answered[self] = None

    def _late(self) -> None:
        if 0 < self.transport.get_write_buffer_size() < self._unread:
            self._wait_for_it()  # it reads, slowly
        else:
            self._end()

    def _end(self) -> None:
        self._forget()
        self.transport.abort()

    def _forget(self) -> None:
        self._answered.pop(self, None)
        if found := self._waited_for.pop(self, None):
            found[1].cancel()

    def data_received(self, data: bytes) -> None:
        # A request ends with a line's end. One that comes in pieces, as slow clients
        # send it, is not counted before.
        if data.endswith(b"\n") and not self._is_answered() and not self._takes(data):
            self.transport.pause_reading()
            self._refusal = self.loop.call_later(Limits.LATE_SECONDS, self._refuse)
            return
        super().data_received(data)
        if self._is_answered() and self.conn.trailing_data[0]:
            # Requests behind this one would go around the limit. A client must be
            # ready to send them again (RFC 9112, 9.3.2).
            self.shutdown()

    def _takes(self, data: bytes) -> bool:
        asked = data[:13]  # which is enough to tell these from others
        if asked.startswith(b"GET /livez"):
            return True
        kind = b"metrics" if asked.startswith(b"GET /metrics") else b""
        if kind not in self._read:
            self._read[kind] = Bucket(self.MOST_READ, self.READ_SECONDS)
        return self._read[kind].takes()

    def _refuse(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(_BUSY)
            self.transport.close()

    def _is_answered(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def handle_events(self) -> None:
        super().handle_events()
        held = self.flow.write_paused or self not in self._waited_for
        if self._is_answered() and not held:
            self._go_on()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for_it()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._is_answered():
            self._go_on()
        else:
            self._wait_for_it()

    def on_response_complete(self) -> None:
        self._wait_for_it()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._forget()
        if self._refusal is not None:
            self._refusal.cancel()


def _room_for_connections() -> int:
    """Return how many connections leave descriptors for files and segments."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return min(Connection.MOST, soft // 2) if soft >= 0 else Connection.MOST


class _Server(uvicorn.Server):
    unix: Path | None = None
    watched: int | None = None  # a descriptor of the process with which to end

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.watched is not None:
            loop = asyncio.get_running_loop()
            loop.add_reader(self.watched, self._end, loop, self.watched)

    def _end(self, loop: asyncio.AbstractEventLoop, watched: int) -> None:
        loop.remove_reader(watched)
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Listeners of /api/v1/events would otherwise stay for the whole grace.
        await self.config.app.state.watcher.close()  # type: ignore[union-attr]
        await super().shutdown(sockets)
        if self.unix is not None:  # here: the signal ends the process after this
            self.unix.unlink(missing_ok=True)


def _listen_at(path: Path) -> socket.socket:
    """Return a Unix socket that only this user can connect to."""
    listener = socket.socket(socket.AF_UNIX)
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as other:
        if stat.S_ISSOCK(path.lstat().st_mode):
            try:
                other.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()  # whoever made it is gone
    # The mode is set before anybody can connect; a chmod would come too late.
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    listener.listen()
    return listener


def uvicorn_config(app: Starlette, rate: float) -> uvicorn.Config:
    """Return how an application of ours is served, whoever connects.

    `rate`: the requests per second that it answers to each client.
    """
    Connection.MOST = _room_for_connections()
    Connection.MOST_READ = max(Connection.MOST_READ, 2 * rate)
    # What is loaded by now stays, so collections during a scrape need not look at it.
    gc.freeze()
    return uvicorn.Config(
        app,
        loop="uvloop",
        http=Connection,
        access_log=False,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=_MAX_REQUEST_BYTES,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )


def run(
    config: ServiceConfig,
    host: str,
    port: int,
    unix: Path | None = None,
    inherited: int | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM; a second one does not wait for clients.

    `unix`: serve at this socket, with mode 0600, and at no address. `inherited`: on
    the socket of this descriptor, and no longer than the process `config.pid` lives.
    """
    server = _Server(uvicorn_config(create_app(config), config.max_rate))
    if inherited is not None:
        assert config.pid is not None
        listener = socket.socket(fileno=inherited)
        server.watched = os.pidfd_open(config.pid)
    elif unix is not None:
        listener, server.unix = _listen_at(unix), unix
    else:
        listener = listen(host, port)
    port = 0 if unix else listener.getsockname()[1]
    address = f"unix:{unix}" if unix else f"http://{in_url(host)}:{port}/"
    print(address, flush=True)
    server.run(sockets=[listener])
