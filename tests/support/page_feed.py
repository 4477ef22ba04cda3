"""The live page over a feed of snapshots that a test writes."""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import uvicorn
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from npu_dispatch.observe.judge.verdict import attention
from npu_dispatch.observe.serve.app import ServiceConfig, create_app


class PageFeed:
    """The service itself, but for `/api/v1/events`: send() says what comes there."""

    def __init__(self, empty: Path) -> None:
        """`empty`: a folder without segments."""
        self._status = 200
        self.unanswered = threading.Event()  # somebody waits for an answer
        self._sent: list[bytes] = []
        self._listeners: set[asyncio.Queue[bytes | None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        app = create_app(ServiceConfig(directory=empty))
        app.router.routes.insert(0, Route("/api/v1/events", self._events))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/"
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([self._listener],)
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def _events(self, _: Request) -> Response:
        if self._status == 0:
            self.unanswered.set()
            await asyncio.Event().wait()
        if self._status != 200:
            return Response("{}", self._status, {"Retry-After": "1"})
        self._loop = asyncio.get_running_loop()
        return StreamingResponse(self._lines(), media_type="text/event-stream")

    async def _lines(self) -> AsyncIterator[bytes]:
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        for data in self._sent:
            yield data
        self._listeners.add(queue)
        try:
            while (item := await queue.get()) is not None:
                yield item
        finally:
            self._listeners.discard(queue)

    def _tell(self, item: bytes | None) -> None:
        def put() -> None:
            for queue in self._listeners:
                queue.put_nowait(item)

        if self._loop:
            self._loop.call_soon_threadsafe(put)

    def send(self, value: Any, name: str = "snapshot") -> None:
        """Send an event to who listens, and to who comes later."""
        self._sent.append(_event(name, value))
        self._tell(self._sent[-1])

    def refuse(self, status: int) -> None:
        """Answer with a status from now on; who listens is hung up on.

        0: do not answer.
        """
        self._status = status
        self._tell(None)

    def stop(self) -> None:
        """End the service: nobody answers any more."""
        self._tell(None)
        self._server.should_exit = True
        self._thread.join()
        self._loop = None


def snapshot(
    tick: float, *processes: dict[str, Any], killed: tuple[dict[str, Any], ...] = ()
) -> dict[str, Any]:
    """Return what the service sends; its clocks show the same, from a day in 2023."""
    return {
        "time": 1_700_000_000.0 + tick,
        "tick": tick,
        "interval": 1.0,
        "processes": list(processes),
        "killed": list(killed),
    }


def with_trend(process: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a copy of a process whose trend has other values."""
    return process | {"trend": process["trend"] | changes}


def with_verdict(process: dict[str, Any], kind: str, **changes: Any) -> dict[str, Any]:
    """Return a copy of a process that is judged otherwise."""
    known = {"text": f"{kind}: as a test says", "at": "", "action": ""}
    return process | {
        "verdict": {"kind": kind, **known, **changes},
        "attention": attention(kind),
    }


def ranks(process: dict[str, Any], number: int, slow: int) -> list[dict[str, Any]]:
    """Return a job's processes, of which all but one wait for that one."""
    found = []
    for rank in range(number):
        late = rank == slow
        kind = "launch-bound" if late else "blocked"
        text = "device idle 71 %" if late else "the host waits 62 % of the time"
        name = {"name": "train.py", "id": str(rank), "pid": 4000 + rank}
        one = with_verdict(process, kind, text=f"{kind}: {text}")
        one |= name | {"rank": str(rank), "world_size": str(number), "job_id": "77"}
        one["launches_per_s"] = 4180.0 + rank
        waits = {"item": 0.03} if late else {"item": 0.5 + rank / 50, "d2h": 0.06}
        busy = {"busy": 0.24 + rank / 100, "held": 0.0, "starved": 0.6 * late}
        found.append(with_trend(one, waits=waits, device=busy))
    return found


def _event(name: str, value: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps(value)}\n\n".encode()
