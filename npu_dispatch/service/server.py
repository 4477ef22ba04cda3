"""The service as a program: uvicorn on uvloop, and a graceful stop."""

from __future__ import annotations

import gc
import socket

import uvicorn

from npu_dispatch.service.app import ServiceConfig, create_app

__all__ = ["run"]

_GRACE_SECONDS = 5
_MAX_CONNECTIONS = 256
_MAX_REQUEST_BYTES = 16 << 10


class _Server(uvicorn.Server):
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Listeners of /api/v1/events would otherwise stay for the whole grace.
        await self.config.app.state.watcher.close()  # type: ignore[union-attr]
        await super().shutdown(sockets)


def run(config: ServiceConfig, host: str, port: int) -> None:
    """Serve until SIGINT or SIGTERM; a second one does not wait for clients."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=128)
    name = f"[{host}]" if ":" in host else host
    print(f"http://{name}:{listener.getsockname()[1]}/", flush=True)
    # What is loaded by now stays: a collection during a scrape need not look at it.
    gc.freeze()
    _Server(
        uvicorn.Config(
            create_app(config),
            loop="uvloop",
            http="h11",
            access_log=False,
            log_level="warning",
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_MAX_CONNECTIONS,
            h11_max_incomplete_event_size=_MAX_REQUEST_BYTES,
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
    ).run(sockets=[listener])
