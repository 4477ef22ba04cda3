"""The service as an ASGI application, to run alone or to mount into another.

app.mount("/npu", create_app())      # FastAPI, Starlette, ...
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from npu_dispatch.observe.serve.access import Compressed, guards
from npu_dispatch.observe.serve.endpoints import Endpoints
from npu_dispatch.observe.serve.options import ServiceConfig
from npu_dispatch.observe.serve.telemetry import Measured
from npu_dispatch.observe.serve.watcher import Watcher

__all__ = ["ServiceConfig", "create_app"]


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
    app.state.watcher = watcher
    return app


async def _say(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)
