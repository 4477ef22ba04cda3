"""The description of the service's routes as OpenAPI, made of their docstrings.

A page of the site is made of it, too.
"""

from __future__ import annotations

from typing import Any

from starlette.routing import BaseRoute
from starlette.schemas import SchemaGenerator

import npu_dispatch

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
