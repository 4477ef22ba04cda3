"""What can be asked of the service: its routes, and their description as OpenAPI.

A page of the site is made of the description.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import npu_dispatch

__all__ = ["ENDPOINTS", "Endpoint", "Parameter", "openapi"]

_ADMIN = "/api/v1/admin/"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A part of the path, or what comes behind `?`. `schema` is JSON Schema."""

    name: str
    meaning: str
    schema: Mapping[str, Any]
    in_path: bool = False


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`refusals`: status codes other than 200, and when they are sent."""

    method: str
    path: str
    handler: str  # a method of app.py's endpoints
    summary: str
    text: str = ""
    media: str = "application/json"
    parameters: tuple[Parameter, ...] = ()
    refusals: Mapping[int, str] = field(default_factory=dict)


_PROCESS = Parameter(
    "process",
    "The `id` of one process; by default all processes are meant.",
    {"type": "string"},
)
_NO_PROCESS = {404: "There is no such process, or none at all."}


def _files() -> tuple[Endpoint, ...]:
    return (Endpoint("GET", "/", "page", "The live page.", media="text/html"),)


def _health() -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            "/metrics",
            "metrics",
            "The metrics of all processes.",
            "The format follows the header `Accept`: Prometheus text or OpenMetrics.",
            media="text/plain",
        ),
        Endpoint(
            "GET",
            "/livez",
            "livez",
            "Whether the service itself works.",
            "It needs no token, and no limit of rate holds for it. The answer has "
            "`status` and `reading_age_s`, the seconds since the counters were read.",
            refusals={
                503: "The counters could not be read for 30 seconds, or ten intervals."
            },
        ),
        Endpoint(
            "GET",
            "/readyz",
            "readyz",
            "Whether all processes make progress.",
            "The answer has `status` and `reasons`, one sentence for each process that "
            "hangs, is stopped or has failed.",
            refusals={503: "A stream hangs or has failed; `reasons` says which."},
        ),
    )


def _of_processes() -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            "/api/v1/openapi.json",
            "description",
            "This description, as OpenAPI 3.1.",
        ),
        Endpoint(
            "GET",
            "/api/v1/snapshot",
            "snapshot",
            "All that is known of all processes.",
            "The answer has `time`, `tick`, `interval`, the seconds between readings, "
            "`processes`, a list of objects, and "
            "`killed`: of each process that was killed in the last ten minutes `pid`, "
            "`name`, `rank`, `job_id`, `at`, the line that it was at, and `time` and "
            "`tick` at which it was found dead.",
        ),
        Endpoint(
            "GET",
            "/api/v1/streams/{id}/pending",
            "pending",
            "The queued tasks of a stream.",
            "The answer is a list with an object for each process that has such a "
            "stream: `id`, `pid`, `stream`, `queued` and `tasks`. Each task has its "
            "number, `task`; the first one has `op`, `age_s` and `waits_for`, too.",
            parameters=(
                Parameter(
                    "id",
                    "`DEVICE:STREAM`, e.g. `0:0`.",
                    {"type": "string"},
                    in_path=True,
                ),
                _PROCESS,
                Parameter(
                    "limit",
                    "How many tasks are listed.",
                    {"type": "integer", "default": 100, "maximum": 1000},
                ),
            ),
            refusals={
                400: "`limit` is no number.",
                404: "No process has such a stream.",
            },
        ),
        Endpoint(
            "GET",
            "/api/v1/events",
            "events",
            "Snapshots as server-sent events.",
            "The first event is named `history`: a list with `time`, `tick` and, of "
            "each process, `id`, `pid` and `trend`, for the last ten minutes. Each "
            "later one is a `snapshot`, whose data are what `/api/v1/snapshot` "
            "answers; the newest comes at once.",
            media="text/event-stream",
            refusals={503: "`--max-clients` are listening; `Retry-After` says when."},
        ),
        Endpoint(
            "GET",
            "/api/v1/trace",
            "trace",
            "A timeline of the past, as a file.",
            "Its type is `application/json` where the format is `chrome`.",
            parameters=(
                _PROCESS,
                Parameter(
                    "seconds",
                    "How much of the past the file has.",
                    {
                        "type": "number",
                        "default": 5,
                        "exclusiveMinimum": 0,
                        "maximum": 60,
                    },
                ),
                Parameter(
                    "format",
                    "`chrome` for chrome://tracing, `perfetto` for ui.perfetto.dev.",
                    {
                        "type": "string",
                        "default": "chrome",
                        "enum": ["chrome", "perfetto"],
                    },
                ),
            ),
            media="application/octet-stream",
            refusals={
                400: "`seconds` or `format` is none that is possible.",
                404: "There is no such process, or it has no records.",
                409: "The process keeps no records; the answer says how it would.",
                503: "Another trace is being written.",
            },
        ),
        Endpoint(
            "GET",
            "/api/v1/stacks",
            "stacks",
            "Where the host waits and what the streams run, by Python line.",
            "The answer is a list with an object for each process: `id`, `pid`, "
            "`host_waits`, `streams`, each with its `head` and its last 128 tasks, and "
            "`lines`: how many of those each line launched, and what the host waited "
            "there.",
            parameters=(_PROCESS,),
            refusals=_NO_PROCESS,
        ),
    )


def _of_admin() -> tuple[Endpoint, ...]:
    def post(
        path: str, handler: str, summary: str, text: str, *choices: str
    ) -> Endpoint:
        switch = Parameter(
            "switch",
            f"`{'` or `'.join(choices)}`.",
            {"type": "string", "enum": list(choices)},
            in_path=True,
        )
        return Endpoint(
            "POST",
            _ADMIN + path,
            handler,
            summary,
            text,
            parameters=(*((switch,) if choices else ()), _PROCESS),
            refusals={
                401: "The header `Authorization` lacks the administrator's token.",
                403: "The service runs without `--enable-admin`, or the process is "
                "another user's.",
                **_NO_PROCESS,
            },
        )

    return (
        post(
            "dump",
            "dump",
            "What each process is doing.",
            "The answer is a list of objects with `pid` and `text`, the words of "
            "`npu-dispatch dump`, which the service also writes to its stderr.",
        ),
        post(
            "trace/{switch}",
            "tracing",
            "Let processes keep records of their tasks, or no longer.",
            "The answer is a list of objects with `pid` and `tracing`.",
            "start",
            "stop",
        ),
        post(
            "launch-blocking/{switch}",
            "launch_blocking",
            "Let processes wait for each task that they launch, or no longer.",
            "The answer is a list of objects with `pid` and `launch_blocking`.",
            "on",
            "off",
        ),
    )


ENDPOINTS = (*_files(), *_health(), *_of_processes(), *_of_admin())


def openapi() -> dict[str, Any]:
    """Return the description of ENDPOINTS as an OpenAPI 3.1 document."""
    paths: dict[str, dict[str, Any]] = {}
    for one in ENDPOINTS:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "npu-dispatch serve",
            "version": npu_dispatch.__version__,
            "summary": "What the processes of a machine do on the device npu.",
        },
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}
        },
    }


def _operation(one: Endpoint) -> dict[str, Any]:
    answers = {str(code): {"description": text} for code, text in one.refusals.items()}
    found: dict[str, Any] = {
        "operationId": one.path.strip("/") or "page",
        "summary": one.summary,
        **({"description": one.text} if one.text else {}),
        "parameters": [
            {
                "name": parameter.name,
                "in": "path" if parameter.in_path else "query",
                "required": parameter.in_path,
                "description": parameter.meaning,
                "schema": dict(parameter.schema),
            }
            for parameter in one.parameters
        ],
        "responses": {
            "200": {"description": one.summary, "content": {one.media: {}}},
            **answers,
        },
    }
    if one.path.startswith(_ADMIN):
        found["security"] = [{"token": []}]
    return found
