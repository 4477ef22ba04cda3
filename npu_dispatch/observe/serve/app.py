"""The service as an ASGI application, to run alone or to mount into another.

app.mount("/npu", create_app())      # FastAPI, Starlette, ...
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    JSONResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from npu_dispatch.observe.judge.describe import dump_lines
from npu_dispatch.observe.segment import StatsError
from npu_dispatch.observe.segment.listing import Processes, ProcessView
from npu_dispatch.observe.serve.access import guards
from npu_dispatch.observe.serve.admin import (
    ask_launch_blocking,
    ask_tracing,
    check_token,
)
from npu_dispatch.observe.serve.routes import ENDPOINTS, Endpoint, openapi
from npu_dispatch.observe.serve.scrapes import KEPT_SECONDS
from npu_dispatch.observe.serve.stacks import stacks
from npu_dispatch.observe.serve.telemetry import ROUTE, Measured
from npu_dispatch.observe.serve.watcher import Watcher
from npu_dispatch.observe.trace.trace import NotRecordingError, of_past, save
from npu_dispatch.observe.trace.trace_file import TraceError

__all__ = ["ServiceConfig", "create_app"]

_PAGE = Path(__file__).parent / "page"
_STYLE = ("npu_dispatch.drawing", "style")  # the package, and the folder in it
_POLICY = (
    "default-src 'self'; img-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
_MAX_PENDING = 1000
_MAX_TRACE_S = 60.0
# By `?format=`: content type, suffix.
_TRACE_TYPES = {
    "chrome": ("application/json", ".json"),
    "perfetto": ("application/octet-stream", ".pftrace"),
}
_HOW_TO_RECORD = (
    "start it with NPU_TRACE=1, or POST /api/v1/admin/trace/start "
    "(--enable-admin), or use `npu-dispatch trace PID`"
)
Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """The settings. `hosts`: names that a Host header may have, besides localhost."""

    hosts: tuple[str, ...] = ()
    interval: float = 1.0  # seconds between readings
    hang_seconds: float = 10.0  # without progress: hung
    max_clients: int = 64  # of /api/v1/events
    max_rate: float = 200.0  # requests per second, of each client
    kept_seconds: float = KEPT_SECONDS  # for which /metrics gives an answer again
    pid: int | None = None  # only this process
    directory: Path | None = None  # of the segments, where not the usual one
    all_users: bool = False  # show every process whose segment can be read
    ops: int = 0  # metrics by operator, of the costliest so many
    per_stream: bool = False  # histograms of every stream, and what is costly
    admin_token: str | None = None  # None: nothing can be changed from outside
    token: str | None = None  # for reading; None: needs none


class _Listened(StreamingResponse):
    """A stream of events. However it ends, `ended` is called, and once."""

    ended: Callable[[], None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.ended()


def create_app(config: ServiceConfig | None = None) -> Starlette:
    """Make an application; `app.state.watcher` may be close()d early."""
    config = config or ServiceConfig()
    watcher = Watcher(
        Processes(
            pid=config.pid, directory=config.directory, all_users=config.all_users
        ),
        interval=config.interval,
        hang_seconds=config.hang_seconds,
        top_ops=config.ops,
        per_stream=config.per_stream,
    )
    endpoints = _Endpoints(config, watcher)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await watcher.ready()
        yield
        await watcher.close()

    app = Starlette(
        routes=endpoints.routes(),
        lifespan=lifespan,
        middleware=[
            Middleware(Measured, telemetry=watcher.telemetry),
            *guards(
                hosts=config.hosts,
                token=config.token,
                admin=config.admin_token,
                rate=config.max_rate,
            ),
            Middleware(GZipMiddleware, minimum_size=4096, compresslevel=4),
        ],
        exception_handlers={HTTPException: _say},
    )
    app.state.watcher = watcher
    return app


async def _say(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


class _PageFiles(StaticFiles):
    """What the page loads. A browser asks each time whether a file has changed."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        answer = await super().get_response(path, scope)
        answer.headers["Cache-Control"] = "no-cache"
        scope[ROUTE] = "/page/{file}"
        return answer


class _Endpoints:
    def __init__(self, config: ServiceConfig, watcher: Watcher) -> None:
        self._config, self._watcher = config, watcher
        self._clients = 0
        self._tracing = asyncio.Lock()  # one trace at a time: they are large

    def routes(self) -> list[BaseRoute]:
        def route(one: Endpoint) -> Route:
            handler: Handler = getattr(self, one.handler)

            async def named(request: Request) -> Response:
                request.scope[ROUTE] = one.path
                return await handler(request)

            return Route(one.path, named, methods=[one.method])

        pages = Mount("/page", _PageFiles(directory=_PAGE, packages=[_STYLE]))
        return [pages, *(route(one) for one in ENDPOINTS)]

    async def description(self, _: Request) -> Response:
        return JSONResponse(openapi())

    async def page(self, _: Request) -> Response:
        headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"}
        return FileResponse(_PAGE / "index.html", headers=headers)

    async def metrics(self, request: Request) -> Response:
        accept = request.headers.get("accept", "")
        answer = functools.partial(
            self._watcher.scrapes.answer,
            accept,
            self._watcher.telemetry.families,
            kept=self._config.kept_seconds,
        )
        body, content_type = await asyncio.to_thread(answer)
        return Response(body, headers={"Content-Type": content_type})

    async def livez(self, _: Request) -> Response:
        """Say that this service lives; 503 once readings have failed for too long."""
        await self._watcher.ready()  # a mounted service may be asked nothing else
        stale = self._watcher.is_stale()
        body = {
            "status": "stale" if stale else "ok",
            "reading_age_s": round(self._watcher.age(), 3),
        }
        return JSONResponse(body, 503 if stale else 200)

    async def readyz(self, _: Request) -> Response:
        """503 while a stream has failed, hangs, or lost its launcher."""
        await self._watcher.ready()
        reasons = [
            f"process {process['pid']}: {process['verdict']['text']}"
            for process in self._watcher.snapshot["processes"]
            if process["verdict"]["kind"] in ("stopped", "hung", "failed")
        ]
        status = "not ready" if reasons else "ok"
        body = {"status": status, "reasons": reasons}
        return JSONResponse(body, 503 if reasons else 200)

    async def snapshot(self, _: Request) -> Response:
        await self._watcher.ready()
        return JSONResponse(self._watcher.snapshot)

    async def pending(self, request: Request) -> Response:
        """The queued tasks of stream DEVICE:STREAM; `?process=` and `?limit=`."""
        await self._watcher.ready()
        name, one = request.path_params["id"], request.query_params.get("process")
        try:
            limit = min(int(request.query_params.get("limit", "100")), _MAX_PENDING)
        except ValueError:
            raise HTTPException(400, "limit: expected a number") from None
        found = [
            _pending(process, stream, max(0, limit))
            for process in self._watcher.snapshot["processes"]
            for stream in process["streams"]
            if stream["name"] == name and one in (None, process["id"])
        ]
        if not found:
            raise HTTPException(404, f"no stream {name!r}: expected DEVICE:STREAM")
        return JSONResponse(found)

    async def events(self, _: Request) -> Response:
        if self._clients >= self._config.max_clients:
            text = f"more than {self._config.max_clients} listeners"
            raise HTTPException(503, text, {"Retry-After": "10"})

        async def lines() -> AsyncIterator[bytes]:
            yield b"retry: 2000\n\n"
            async for name, data in self._watcher.events():
                yield b"event: %s\ndata: %s\n\n" % (name.encode(), data)

        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        answer = _Listened(lines(), media_type="text/event-stream", headers=headers)
        # Counted here, with no await since the comparison, as many may come at once.
        self._clients += 1
        answer.ended = self._lose_listener
        return answer

    def _lose_listener(self) -> None:
        self._clients -= 1

    def _chosen(self, request: Request) -> list[ProcessView]:
        """Return the processes that `?process=` names, by default all."""
        one = request.query_params.get("process")
        found = [view for view in self._watcher.views if one in (None, view.id)]
        if not found:
            raise HTTPException(404, f"no process {one!r}" if one else "no process")
        return found

    async def stacks(self, request: Request) -> Response:
        """Where the host waits and what the streams run, by Python line."""
        await self._watcher.ready()
        views = self._chosen(request)

        def read() -> list[dict[str, Any]]:
            with self._watcher.scrapes.processes() as processes:
                return [stacks(view, processes.reader(view)) for view in views]

        return JSONResponse(await asyncio.to_thread(read))

    async def trace(self, request: Request) -> Response:
        """The last `?seconds=` as a file, `?format=` chrome or perfetto."""
        await self._watcher.ready()
        views = self._chosen(request)
        try:
            seconds = float(request.query_params.get("seconds", "5"))
        except ValueError:
            raise HTTPException(400, "seconds: expected a number") from None
        form = request.query_params.get("format", "chrome")
        if form not in _TRACE_TYPES:
            expected = ", ".join(_TRACE_TYPES)
            raise HTTPException(400, f"format: expected one of {expected}")
        if not 0 < seconds <= _MAX_TRACE_S:
            raise HTTPException(400, f"seconds: expected up to {_MAX_TRACE_S:g}")
        pids = [view.info.pid for view in views]
        if self._tracing.locked():
            raise HTTPException(503, "another trace is being written")
        async with self._tracing:
            try:
                data = await asyncio.to_thread(_trace, pids, seconds, form)
            except NotRecordingError as error:
                raise HTTPException(409, f"{error}; {_HOW_TO_RECORD}") from None
            except TraceError as error:
                raise HTTPException(404, str(error)) from None
        kind, suffix = _TRACE_TYPES[form]
        name = f'attachment; filename="npu_trace{suffix}"'
        return Response(data, media_type=kind, headers={"Content-Disposition": name})

    async def _asked(self, request: Request) -> list[ProcessView]:
        """Return the processes to be changed; raise without the token."""
        check_token(request, self._config.admin_token)
        await self._watcher.ready()
        return self._chosen(request)

    async def dump(self, request: Request) -> Response:
        """What each process is doing, also written to the service's stderr."""
        views = await self._asked(request)
        found = [
            {"pid": view.info.pid, "text": "\n".join(dump_lines(view))}
            for view in views
        ]
        for dumped in found:
            print(dumped["text"], file=sys.stderr, flush=True)
        return JSONResponse(found)

    async def tracing(self, request: Request) -> Response:
        """Let processes keep records of their tasks from now on, or no longer."""
        views = await self._asked(request)
        wanted = _switch(request, on="start", off="stop")
        pids = [view.info.pid for view in views]
        try:
            for pid in pids:
                ask_tracing(pid, wanted)
        except TraceError as error:
            raise HTTPException(404, str(error)) from None
        return JSONResponse([{"pid": pid, "tracing": wanted} for pid in pids])

    async def launch_blocking(self, request: Request) -> Response:
        """Let processes wait for each task they launch, or no longer."""
        views = await self._asked(request)
        wanted = _switch(request, on="on", off="off")
        with self._watcher.scrapes.processes() as processes:
            files = [(view, processes.segment(view)) for view in views]
        asked = []
        for view, file in files:
            if file is None:
                continue  # it has just ended
            try:
                ask_launch_blocking(file, wanted)
            except (OSError, StatsError) as error:  # another user's, or just gone
                raise HTTPException(403, str(error)) from None
            asked.append({"pid": view.info.pid, "launch_blocking": wanted})
        return JSONResponse(asked)


def _switch(request: Request, *, on: str, off: str) -> bool:
    found = request.path_params["switch"]
    if found not in (on, off):
        raise HTTPException(404, f"expected {on} or {off}, got {found!r}")
    return bool(found == on)


def _trace(pids: list[int], seconds: float, form: str) -> bytes:
    """Return a trace file of the past."""
    found = [of_past(pid, seconds) for pid in pids]
    with tempfile.TemporaryDirectory(prefix="npu_trace-") as folder:
        file = Path(folder) / f"trace{_TRACE_TYPES[form][1]}"
        for _ in save(found, file):
            pass  # it yields lines that say what is in the file
        return file.read_bytes()


def _pending(
    process: dict[str, Any], stream: dict[str, Any], limit: int
) -> dict[str, Any]:
    """Return the task at the head by name, those behind it by number."""
    first, end = stream["retired"], stream["submitted"]
    tasks: list[dict[str, Any]] = [
        {"task": number} for number in range(first, min(end, first + limit))
    ]
    if tasks:
        waits = {edge["from"]: edge["to"] for edge in process["waits_for"]}
        tasks[0] |= {
            "op": stream["running"],
            "age_s": stream["age_s"],
            "waits_for": waits.get(stream["name"]),
        }
    identity = {"id": process["id"], "pid": process["pid"]}
    return {**identity, "stream": stream["name"], "queued": end - first, "tasks": tasks}
