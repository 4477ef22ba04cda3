"""The service as a program, which runs uvicorn on uvloop and stops gracefully."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import socket
import stat
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

from npu_dispatch.observe.serve.app import ServiceConfig, create_app
from npu_dispatch.observe.serve.connections import Connection
from npu_dispatch.observe.serve.options import in_url, listen

_FILES = 4096
_GRACE_SECONDS = 5
_MAX_REQUEST_BYTES = 16 << 10


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
