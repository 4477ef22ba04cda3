"""rest.md: the routes of the service, by its OpenAPI description."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from markdown_table import table
from snapshot_fields import FIELDS

from npu_dispatch.observe.serve.app import create_app, openapi

HEAD = """# REST API

`npu-dispatch serve` describes the same at `/api/v1/openapi.json`. How to start the
service, and who may read from it: [Watch a fleet](observability.md#run-the-service).

    curl http://127.0.0.1:9401/api/v1/snapshot
    curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:9401/api/v1/snapshot

Answers are JSON where nothing else is said. A refusal is a status code and
`{"error": "why"}`. Besides those that are listed, each route may answer
"""
EVERYWHERE = {
    400: "The header `Host` has a name that the service was not given with "
    "`--allow-host`. This refusal is plain text.",
    401: "The service has a `--token`, and the request has neither the header "
    "`Authorization: Bearer TOKEN` nor the cookie that `/?token=TOKEN` gives a "
    "browser.",
    404: "There is no such route.",
    429: "More than `--max-rate` requests of one client came in a second; "
    "`Retry-After` says when.",
    503: "128 requests are being answered, or more come in a second than are read: "
    "400, or twice `--max-rate`; `Retry-After` says when. Scrapes, listeners and "
    "`/livez` have room of their own.",
}
ADMIN = """
Routes below `/api/v1/admin/` exist with `--enable-admin` and need the administrator's
token. `/livez` needs none and is always answered.
"""

FIELDS_HEAD = """
## Fields of a process

`/api/v1/snapshot` has all of them; the other routes have those that they name. Rates
and percentiles are of the last two seconds.
"""


def lines() -> Iterator[str]:
    yield HEAD
    yield from table("status | when", ((str(c), w) for c, w in EVERYWHERE.items()))
    yield ADMIN.rstrip()
    document = openapi(create_app().routes)
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield from _operation(f"{method.upper()} {path}", operation, document)
    yield FIELDS_HEAD.rstrip()
    for place, fields in FIELDS.items():
        yield f"\n### `{place}`\n" if place else ""
        rows = ((f"`{name}`", meaning) for name, meaning in fields.items())
        yield from table("field | meaning", rows)


def _resolved(part: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    for name in part.get("$ref", "").split("/")[1:]:
        part = document = document[name]
    return part


def _operation(
    title: str, operation: dict[str, Any], document: dict[str, Any]
) -> Iterator[str]:
    yield f"\n## {title}\n"
    described = [operation["summary"], operation.get("description", "")]
    answer, *refusals = operation["responses"].items()
    (media,) = answer[1]["content"]
    if media != "application/json":
        described.append(f"The answer is `{media}`.")
    yield textwrap.fill(" ".join(filter(None, described)), 88, break_on_hyphens=False)
    if parameters := operation.get("parameters"):
        yield ""
        yield from table(
            "parameter | in | meaning | default",
            (_parameter(_resolved(one, document)) for one in parameters),
        )
    if refusals:
        yield ""
        rows = (
            (code, _resolved(refusal, document)["description"])
            for code, refusal in refusals
        )
        yield from table("status | when", rows)


def _parameter(one: dict[str, Any]) -> tuple[str, ...]:
    schema = one["schema"]
    default = str(schema.get("default", ""))
    if "maximum" in schema:
        default += f"; at most {schema['maximum']}"
    return f"`{one['name']}`", one["in"], one["description"], default
