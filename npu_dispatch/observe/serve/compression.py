"""Compressed answers, for the clients that take them."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import Receive, Scope, Send

from npu_dispatch.observe.serve.render import refuses_gzip


class Compressed(GZipMiddleware):
    """Starlette's, which also compresses for who says `gzip;q=0`: never."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            asked = Headers(scope=scope).get("accept-encoding", "")
            if refuses_gzip(asked):
                return await self.app(scope, receive, send)
        return await super().__call__(scope, receive, send)
