"""What answers each route of the service.

What an administrator asks of a process goes through shared memory, so the process
needs no thread, signal or socket for it, and one that hangs is not disturbed.
"""

from __future__ import annotations

import asyncio
import functools
import struct
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
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
from npu_dispatch.observe.segment import StatsError, StatsReader
from npu_dispatch.observe.segment.layout import OFFSETS
from npu_dispatch.observe.segment.listing import ProcessView
from npu_dispatch.observe.segment.system import is_here
from npu_dispatch.observe.segment.untrusted_file import UntrustedFile
from npu_dispatch.observe.serve.access import check_admin
from npu_dispatch.observe.serve.options import ServiceConfig
from npu_dispatch.observe.serve.snapshot import pending_tasks, stacks
from npu_dispatch.observe.serve.telemetry import ROUTE
from npu_dispatch.observe.serve.watcher import Watcher
from npu_dispatch.observe.trace.trace import (
    NotRecordingError,
    of_past,
    open_files,
    save,
)
from npu_dispatch.observe.trace.trace_file import TraceError

_PAGE = Path(__file__).parent / "page"
_STYLE = ("npu_dispatch.drawing", "style")  # the package, and the folder in it
_POLICY = (
    "default-src 'self'; img-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
_MAX_PENDING = 1000
_MAX_TRACE_S = 60.0
_OFF, _ON = 1, 2  # ControlBlock::launch_blocking
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


class _Listened(StreamingResponse):
    """A stream of events. However it ends, `ended` is called, and once."""

    ended: Callable[[], None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.ended()


class _PageFiles(StaticFiles):
    """What the page loads. A browser asks each time whether a file has changed."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        answer = await super().get_response(path, scope)
        answer.headers["Cache-Control"] = "no-cache"
        scope[ROUTE] = "/page/{file}"
        return answer


def _route(path: str, handler: Handler, method: str = "GET") -> Route:
    @functools.wraps(handler)  # its docstring describes the route
    async def named(request: Request) -> Response:
        request.scope[ROUTE] = path
        return await handler(request)

    return Route(path, named, methods=[method])


class Endpoints:
    """What answers each route. The docstrings describe the routes: see app.py."""

    def __init__(self, config: ServiceConfig, watcher: Watcher) -> None:
        self._config, self._watcher = config, watcher
        self._clients = 0
        self._tracing = asyncio.Lock()  # one trace at a time: they are large

    def routes(self) -> list[BaseRoute]:
        api, admin = "/api/v1", "/api/v1/admin"
        return [
            Mount("/page", _PageFiles(directory=_PAGE, packages=[_STYLE])),
            _route("/", self.page),
            _route("/metrics", self.metrics),
            _route("/livez", self.livez),
            _route("/readyz", self.readyz),
            _route(f"{api}/openapi.json", self.description),
            _route(f"{api}/snapshot", self.snapshot),
            _route(f"{api}/streams/{{id}}/pending", self.pending),
            _route(f"{api}/events", self.events),
            _route(f"{api}/trace", self.trace),
            _route(f"{api}/stacks", self.stacks),
            _route(f"{admin}/dump", self.dump, "POST"),
            _route(f"{admin}/trace/{{switch}}", self.tracing, "POST"),
            _route(f"{admin}/launch-blocking/{{switch}}", self.launch_blocking, "POST"),
        ]

    async def description(self, request: Request) -> Response:
        """OpenAPI.

        ---
        summary: This description, as OpenAPI 3.1.
        """
        return JSONResponse(request.app.state.openapi(request.app.routes))

    async def page(self, _: Request) -> Response:
        """HTML.

        ---
        summary: The live page.
        responses: {200: {content: {text/html: {}}}}
        """
        headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"}
        return FileResponse(_PAGE / "index.html", headers=headers)

    async def metrics(self, request: Request) -> Response:
        """Text.

        ---
        summary: The metrics of all processes.
        description: >-
          The format follows the header `Accept`: Prometheus text or OpenMetrics.
        parameters:
          - name: name[]
            in: query
            description: Only series of this name; may be repeated.
            schema: {type: string}
        responses: {200: {content: {text/plain: {}}}}
        """
        families = self._watcher.telemetry.families
        return await self._watcher.scrapes.response(request, families)

    async def livez(self, _: Request) -> Response:
        """JSON.

        ---
        summary: Whether the service itself works.
        description: >-
          It needs no token, and no limit of rate holds for it. The answer has `status`
          and `reading_age_s`, the seconds since the counters were read.
        responses:
          503:
            description: >-
              The counters could not be read for 30 seconds, or ten intervals.
        """
        await self._watcher.ready()  # a mounted service may be asked nothing else
        stale = self._watcher.is_stale()
        body = {
            "status": "stale" if stale else "ok",
            "reading_age_s": round(self._watcher.age(), 3),
        }
        return JSONResponse(body, 503 if stale else 200)

    async def readyz(self, _: Request) -> Response:
        """JSON.

        ---
        summary: Whether all processes make progress.
        description: >-
          The answer has `status` and `reasons`, one sentence for each process that
          hangs, is stopped or has failed.
        responses:
          503: {description: A stream hangs or has failed; `reasons` says which.}
        """
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
        """JSON.

        ---
        summary: All that is known of all processes.
        description: >-
          The answer has `time`, `tick`, `interval`, the seconds between readings,
          `processes`, a list of objects, and `killed`: of each process that was killed
          in the last ten minutes `pid`, `name`, `user`, `rank`, `job_id`, `at`, the
          line that it was at, and `time` and `tick` at which it was found dead.
        """
        await self._watcher.ready()
        return Response(self._watcher.newest, media_type="application/json")

    async def pending(self, request: Request) -> Response:
        """JSON.

        ---
        summary: The queued tasks of a stream.
        description: >-
          The answer is a list with an object for each process that has such a stream:
          `id`, `pid`, `stream`, `queued` and `tasks`. Each task has its number, `task`;
          the first one has `op`, `age_s` and `waits_for`, too.
        parameters:
          - name: id
            in: path
            required: true
            description: "`DEVICE:STREAM`, e.g. `0:0`."
            schema: {type: string}
          - $ref: "#/components/parameters/process"
          - name: limit
            in: query
            description: How many tasks are listed.
            schema: {type: integer, default: 100, maximum: 1000}
        responses:
          400: {description: "`limit` is no number."}
          404: {description: No process has such a stream.}
        """
        await self._watcher.ready()
        name, one = request.path_params["id"], request.query_params.get("process")
        try:
            limit = min(int(request.query_params.get("limit", "100")), _MAX_PENDING)
        except ValueError:
            raise HTTPException(400, "limit: expected a number") from None
        found = [
            pending_tasks(process, stream, max(0, limit))
            for process in self._watcher.snapshot["processes"]
            for stream in process["streams"]
            if stream["name"] == name and one in (None, process["id"])
        ]
        if not found:
            raise HTTPException(404, f"no stream {name!r}: expected DEVICE:STREAM")
        return JSONResponse(found)

    async def events(self, _: Request) -> Response:
        """Server-sent events.

        ---
        summary: Snapshots as server-sent events.
        description: >-
          The first event is named `history`: a list with `time`, `tick` and, of each
          process, `id`, `pid` and `trend`, for the last ten minutes. Each later one is
          a `snapshot`, whose data are what `/api/v1/snapshot` answers; the newest comes
          at once.
        responses:
          200: {content: {text/event-stream: {}}}
          503: {description: "`--max-clients` are listening; `Retry-After` says when."}
        """
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
        """JSON.

        ---
        summary: Where the host waits and what the streams run, by Python line.
        description: >-
          The answer is a list with an object for each process: `id`, `pid`,
          `host_waits`, `streams`, each with its `head` and its last 128 tasks, and
          `lines`: how many of those each line launched, and what the host waited there.
        parameters: [$ref: "#/components/parameters/process"]
        responses: {404: {$ref: "#/components/responses/no_process"}}
        """
        await self._watcher.ready()
        views = self._chosen(request)

        def read() -> list[dict[str, Any]]:
            with self._watcher.scrapes.processes():
                return [stacks(view) for view in views]

        return JSONResponse(await asyncio.to_thread(read))

    async def trace(self, request: Request) -> Response:
        """A file.

        ---
        summary: A timeline of the past, as a file.
        description: Its type is `application/json` where the format is `chrome`.
        parameters:
          - $ref: "#/components/parameters/process"
          - name: seconds
            in: query
            description: How much of the past the file has.
            schema: {type: number, default: 5, exclusiveMinimum: 0, maximum: 60}
          - name: format
            in: query
            description: >-
              `chrome` for chrome://tracing, `perfetto` for ui.perfetto.dev.
            schema: {type: string, default: chrome, enum: [chrome, perfetto]}
        responses:
          200: {content: {application/octet-stream: {}}}
          400: {description: "`seconds` or `format` is none that is possible."}
          404: {description: "There is no such process, or it has no records."}
          409:
            description: No process keeps records; the answer says how one would.
          503: {description: Another trace is being written.}
        """
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
        pids = _numbers(views)
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
        check_admin(request, self._config.admin_token)
        await self._watcher.ready()
        return self._chosen(request)

    async def dump(self, request: Request) -> Response:
        """JSON.

        ---
        summary: What each process is doing.
        description: >-
          The answer is a list of objects with `pid` and `text`, the words of
          `npu-dispatch dump`, which the service also writes to its stderr.
        parameters: [$ref: "#/components/parameters/process"]
        """
        views = await self._asked(request)
        found = [
            {"pid": view.info.pid, "text": "\n".join(dump_lines(view))}
            for view in views
        ]
        for dumped in found:
            print(dumped["text"], file=sys.stderr, flush=True)
        return JSONResponse(found)

    async def tracing(self, request: Request) -> Response:
        """JSON.

        ---
        summary: Let processes keep records of their tasks, or no longer.
        description: The answer is a list of objects with `pid` and `tracing`.
        parameters:
          - name: switch
            in: path
            required: true
            description: "`start` or `stop`."
            schema: {type: string, enum: [start, stop]}
          - $ref: "#/components/parameters/process"
        """
        pids = _numbers(await self._asked(request))
        wanted = _switch(request, on="start", off="stop")
        try:
            with ExitStack() as stack:
                files = open_files(pids, stack)
                for file in files:
                    file.wanted = wanted
        except TraceError as error:
            raise HTTPException(404, str(error)) from None
        return JSONResponse([{"pid": file.pid, "tracing": wanted} for file in files])

    async def launch_blocking(self, request: Request) -> Response:
        """JSON.

        ---
        summary: Let processes wait for each task that they launch, or no longer.
        description: The answer is a list of objects with `pid` and `launch_blocking`.
        parameters:
          - name: switch
            in: path
            required: true
            description: "`on` or `off`."
            schema: {type: string, enum: ["on", "off"]}
          - $ref: "#/components/parameters/process"
        """
        views = await self._asked(request)
        wanted = _switch(request, on="on", off="off")
        try:
            asked = ask_launch_blocking([view.reader.path for view in views], wanted)
        except (OSError, StatsError) as error:  # another user's
            raise HTTPException(403, str(error)) from None
        answer = [
            {"pid": view.info.pid, "launch_blocking": wanted}
            for view in views
            if view.reader.path in asked
        ]
        return JSONResponse(answer)


def _switch(request: Request, *, on: str, off: str) -> bool:
    found = request.path_params["switch"]
    if found not in (on, off):
        raise HTTPException(404, f"expected {on} or {off}, got {found!r}")
    return bool(found == on)


def _numbers(views: Sequence[ProcessView]) -> list[int]:
    """Return the numbers of those in this namespace; elsewhere they name others."""
    found = [view.info.pid for view in views if is_here(view.info.pid_namespace)]
    if not found:
        raise HTTPException(404, "another container's process is traced there only")
    return found


def _trace(pids: list[int], seconds: float, form: str) -> bytes:
    """Return a trace file of the past."""
    found = of_past(pids, seconds)
    with tempfile.TemporaryDirectory(prefix="npu_trace-") as folder:
        file = Path(folder) / f"trace{_TRACE_TYPES[form][1]}"
        for _ in save(found, file):
            pass  # it yields lines that say what is in the file
        return file.read_bytes()


def ask_launch_blocking(segments: Sequence[Path], wanted: bool) -> list[Path]:
    """Ask processes to wait for each task they launch, or not to.

    Returns the segments of those that have not ended. None is asked where one may not
    be. A process notices within 16 tasks of any of its streams.
    """
    at = OFFSETS["Segment.control"] + OFFSETS["ControlBlock.launch_blocking"]
    files: list[UntrustedFile] = []
    with ExitStack() as stack:
        for segment in segments:
            with suppress(FileNotFoundError):
                StatsReader(segment).close()  # raises StatsError for another layout
                file = UntrustedFile(segment, writable=True)
                files.append(stack.enter_context(file))
        for file in files:
            file.write(at, struct.pack("<Q", _ON if wanted else _OFF))
    return [file.path for file in files]
