"""What an administrator may ask of a process from outside, and who is one.

Requests go through shared memory, so the process needs no thread, signal or socket
for them, and one that hangs is not disturbed.
"""

from __future__ import annotations

import struct
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request

from npu_dispatch.observe.segment import OFFSETS, StatsReader
from npu_dispatch.observe.segment.untrusted_file import UntrustedFile
from npu_dispatch.observe.serve.access import bearer, same
from npu_dispatch.observe.trace.trace_file import TraceFile

_OFF, _ON = 1, 2  # ControlBlock::launch_blocking


def check_admin(request: Request, token: str | None) -> None:
    """Raise 403 where there is no administration, 401 without the token."""
    if token is None:
        raise HTTPException(403, "read-only: the service runs without --enable-admin")
    if not same(bearer(request.headers), token):
        raise HTTPException(
            401,
            "expected the header `Authorization: Bearer TOKEN`",
            {"WWW-Authenticate": "Bearer"},
        )


def ask_launch_blocking(segment: Path, wanted: bool) -> None:
    """Ask a process to wait for each task it launches, or not to.

    The process notices within 16 tasks of any of its streams.
    """
    StatsReader(segment).close()  # raises StatsError for another layout
    at = OFFSETS["Segment.control"] + OFFSETS["ControlBlock.launch_blocking"]
    file = UntrustedFile(segment, writable=True)
    try:
        file.write(at, struct.pack("<Q", _ON if wanted else _OFF))
    finally:
        file.close()


def ask_tracing(pid: int, wanted: bool) -> None:
    """Ask a process to keep records of its tasks, or not to.

    Raises TraceError where the process has no room for them.
    """
    with TraceFile.of_process(pid) as file:
        file.wanted = wanted
