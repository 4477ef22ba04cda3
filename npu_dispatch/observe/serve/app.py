"""The service as an ASGI application, to run alone or to mount into another.

app.mount("/npu", create_app())      # FastAPI, Starlette, ...

The description of its routes as OpenAPI is made of their docstrings, and a page of the
site is made of it, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute
from starlette.schemas import SchemaGenerator

import npu_dispatch
from npu_dispatch.observe.serve.access import Compressed, guards
from npu_dispatch.observe.serve.endpoints import Endpoints
from npu_dispatch.observe.serve.options import ServiceConfig
from npu_dispatch.observe.serve.telemetry import Measured
from npu_dispatch.observe.serve.watcher import Watcher

__all__ = ["ServiceConfig", "create_app"]

_PROCESS = {
    "name": "process",
    "in": "query",
    "description": "The `id` of one process; by default all processes are meant.",
    "schema": {"type": "string"},
}
_NO_PROCESS = {"description": "There is no such process, or none at all."}
_REFUSED = {
    "401": {
        "description": "The header `Authorization` lacks the administrator's token."
    },
    "403": {
        "description": "The service runs without `--enable-admin`, or the process is "
        "another user's."
    },
    "404": {"$ref": "#/components/responses/no_process"},
}


def create_app(config: ServiceConfig | None = None) -> Starlette:
    """Make an application; `app.state.watcher` may be close()d early."""
    config = config or ServiceConfig()
    watcher = Watcher(config)
    endpoints = Endpoints(config, watcher)

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
            Middleware(Compressed, minimum_size=4096, compresslevel=4),
        ],
        exception_handlers={HTTPException: _say},
    )
    app.state.watcher, app.state.openapi = watcher, openapi
    return app


async def _say(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


def openapi(routes: list[BaseRoute]) -> dict[str, Any]:
    """Return the description of the routes as an OpenAPI 3.1 document."""
    base = {
        "openapi": "3.1.0",
        "info": {
            "title": "npu-dispatch serve",
            "version": npu_dispatch.__version__,
            "summary": "What the processes of a machine do on the device npu.",
        },
        "components": {
            "parameters": {"process": _PROCESS},
            "responses": {"no_process": _NO_PROCESS},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
    found = SchemaGenerator(base).get_schema(routes)
    for path, methods in found["paths"].items():
        for operation in methods.values():
            operation["operationId"] = path.strip("/") or "page"
            given = {str(k): v for k, v in operation.get("responses", {}).items()}
            answer = {"content": {"application/json": {}}} | given.pop("200", {})
            answer["description"] = operation["summary"]
            operation["responses"] = {"200": answer, **given}
            if path.startswith("/api/v1/admin/"):
                operation["responses"] |= _REFUSED
                operation["security"] = [{"token": []}]
    return found
