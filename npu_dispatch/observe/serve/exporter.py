"""The exporter's helper process: its arguments are PID HOST PORT.

Its first line of input says who may ask. It prints the port that it got, and serves
until its standard input or PID ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Sequence

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from npu_dispatch.observe.segment.listing import Processes
from npu_dispatch.observe.serve.access import guards
from npu_dispatch.observe.serve.scrapes import KEPT_SECONDS, Scrapes
from npu_dispatch.observe.serve.server import listen, uvicorn_config

__all__ = ["create_exporter"]

_log = logging.getLogger(__name__)
_TICK_SECONDS = 1.0
_RATE = 200.0


def create_exporter(
    pid: int,
    hosts: Sequence[str],
    token: str | None,
) -> Starlette:
    """Make an application that serves the metrics of one process, and nothing else."""
    scrapes = Scrapes(Processes(pid=pid), ranked=False)

    async def metrics(request: Request) -> Response:
        accept = request.headers.get("accept", "")
        body, kind = await asyncio.to_thread(scrapes.answer, accept, kept=KEPT_SECONDS)
        return Response(body, headers={"Content-Type": kind})

    async def livez(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    @contextlib.asynccontextmanager
    async def while_it_serves(_: Starlette) -> AsyncIterator[None]:
        ticking = asyncio.create_task(_tick(scrapes))
        yield
        ticking.cancel()

    return Starlette(
        routes=[Route("/metrics", metrics), Route("/livez", livez)],
        lifespan=while_it_serves,
        middleware=guards(hosts=hosts, token=token, rate=_RATE),
    )


async def _tick(scrapes: Scrapes) -> None:
    told = ""
    while True:
        await asyncio.sleep(_TICK_SECONDS)
        try:
            await asyncio.to_thread(scrapes.tick)
        except Exception as error:  # the next one may do; a scrape would tell more
            if repr(error) != told:
                told = repr(error)
                _log.exception("the counters could not be read")


class _Server(uvicorn.Server):
    """Ends with its standard input, and with the process that is watched."""

    watched: int

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        loop = asyncio.get_running_loop()
        loop.add_reader(self.watched, self._end)
        loop.add_reader(sys.stdin.fileno(), self._read_input)

    def _end(self) -> None:
        self.should_exit = True
        asyncio.get_running_loop().remove_reader(self.watched)

    def _read_input(self) -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self.should_exit = True


def serve(pid: int, host: str, port: int) -> int:
    asked = json.loads(sys.stdin.buffer.readline())
    app = create_exporter(pid, **asked)
    try:
        # Else a wrong name of a host would be found by the first request only.
        app.middleware_stack = app.build_middleware_stack()
        listener = listen(host, port)
        watched = os.pidfd_open(pid)
    except (OSError, OverflowError, ValueError) as error:
        print(error, flush=True)
        return 1
    server = _Server(uvicorn_config(app, _RATE))
    server.watched = watched
    print(listener.getsockname()[1], flush=True)
    server.run(sockets=[listener])
    return 0


if __name__ == "__main__":
    sys.exit(serve(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
