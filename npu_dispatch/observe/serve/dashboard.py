"""The dashboard as Grafana reads it, from the panels' description."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from npu_dispatch.observe.serve.panels import ROWS, VERDICTS, Panel

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Each variable's label, and where its values are. A choice narrows those below it.
# "All" is .*, so a label that is absent does no harm: few have a cluster, or ranks.
_VARIABLES = {
    "cluster": ("cluster", "process_info"),
    "job": ("job_id", "process_info"),
    "host": ("host", "process_info"),
    "rank": ("rank", "process_info"),
    "device": ("device", "queue_capacity"),
    "stream": ("stream", "queue_capacity"),
}
# How many of them, from the first, choose among the series of a query's letter.
_SELECTED = {"E": 1, "P": 4, "D": 5, "S": 6}
_PAGE = "http://${host}:9401/"
_WHO = "host, instance, process, rank"
_HEIGHTS = {"stat": 5, "table": 5, "state-timeline": 7}
_VERDICT = " or ".join(
    f'{code} * process_verdict{{P, kind="{kind}"}}'
    for kind, (code, _) in VERDICTS.items()
)
_BAD = {"mode": "absolute", "steps": [{"color": "green"}, {"color": "red", "value": 1}]}


def _selector(count: int) -> str:
    """Return what the first variables choose."""
    chosen = list(_VARIABLES.items())[:count]
    return ", ".join(f'{label}=~"${name}"' for name, (label, _) in chosen)


def _expand(query: str) -> str:
    def name(found: re.Match[str]) -> str:
        return f"npu_dispatch_{found[1]}{{{_selector(_SELECTED[found[2]])}"

    query = re.sub(r"(\w+)\{([PDSE])\b", name, query.replace("VERDICT", _VERDICT))
    query = query.replace("WHO", _WHO).replace("[R]", "[$__rate_interval]")
    return query.replace("RULES", "|".join(_alerts()))


@cache
def _alerts() -> list[str]:
    text = (Path(__file__).parent / "deploy" / "alerts.yml").read_text()
    return re.findall(r"^ *- alert: (\w+)", text, re.M)


def _variables() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": "datasource", "type": "datasource", "query": "prometheus"}
    ]
    for i, (name, (label, metric)) in enumerate(_VARIABLES.items()):
        series = f"npu_dispatch_{metric}{{{_selector(i)}}}"
        found.append(
            {
                "name": name,
                "type": "query",
                "datasource": _SOURCE,
                "query": {
                    "query": f"label_values({series}, {label})",
                    "refId": name,
                },
                "refresh": 2,
                "sort": 3,
                "includeAll": True,
                "multi": True,
                "allValue": ".*",
                "current": {"text": "All", "value": "$__all"},
            }
        )
    return found


def _appearance(panel: Panel) -> dict[str, Any]:
    """Return what is particular to the panel's kind; Grafana adds its defaults."""
    defaults: dict[str, Any] = {"unit": panel.unit}
    options: dict[str, Any] = {}
    if panel.unit == "percentunit":
        defaults |= {"min": 0, "max": 1}
    match panel.kind:
        case "timeseries":
            options = {
                "legend": {"displayMode": "table", "calcs": ["lastNotNull", "max"]},
                "tooltip": {"mode": "multi", "sort": "desc"},
            }
        case "state-timeline":
            said = {
                str(code): {"text": kind, "color": color, "index": code}
                for kind, (code, color) in VERDICTS.items()
            }
            defaults["mappings"] = [{"type": "value", "options": said}]
            options = {"legend": {"showLegend": False}}
        case "stat":
            options = {"colorMode": "value", "textMode": "value"}
            if panel.title != "Processes":
                defaults["thresholds"] = _BAD
                options["colorMode"] = "background"
        case "bargauge":
            options = {"displayMode": "gradient", "orientation": "horizontal"}
    return {
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "transformations": _transformations(panel.kind),
    }


def _transformations(kind: str) -> list[dict[str, Any]]:
    if kind == "table":
        hidden = ("Time", "Value", "__name__", "alertstate", "cluster", "job")
        options: dict[str, Any] = {"excludeByName": dict.fromkeys(hidden, True)}
        return [{"id": "organize", "options": options}]
    # Processes without a rank have no word for it in their legend.
    options = {"regex": "/ rank(?= npu| p|$)/", "renamePattern": ""}
    return [{"id": "renameByRegex", "options": options}]


def _targets(panel: Panel) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for i, (legend, query) in enumerate(panel.queries.items()):
        target = {
            "refId": chr(ord("A") + i),
            "datasource": _SOURCE,
            "expr": _expand(query),
            "legendFormat": legend,
            "instant": panel.kind in ("table", "bargauge", "stat"),
            "range": panel.kind in ("timeseries", "state-timeline"),
        }
        if panel.kind == "table":
            target["format"] = "table"
        found.append(target)
    return found


def _panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        place = {"x": 0, "y": y, "w": 24, "h": 1}
        found.append({"type": "row", "title": title, "gridPos": place, "panels": []})
        x, y, height = 0, y + 1, 0
        for panel in row:
            if x + panel.width > 24:
                x, y = 0, y + height
            height = _HEIGHTS.get(panel.kind, 8)
            found.append(
                {
                    "type": panel.kind,
                    "title": panel.title,
                    "description": panel.text,
                    "datasource": _SOURCE,
                    "gridPos": {"x": x, "y": y, "w": panel.width, "h": height},
                    "targets": _targets(panel),
                    **_appearance(panel),
                }
            )
            x += panel.width
        y += height
    return [{"id": i, **panel} for i, panel in enumerate(found, 1)]


def _link(title: str, url: str, tooltip: str) -> dict[str, Any]:
    return {
        "title": title,
        "type": "link",
        "icon": "external link",
        "targetBlank": True,
        "tags": [],
        "tooltip": tooltip,
        "url": url,
    }


def dashboard() -> str:
    """Return the dashboard as JSON, to be imported into Grafana.

    Its links to the documentation begin with DOCS/.
    """
    board = {
        "title": "npu_dispatch",
        "uid": "npu-dispatch",
        "schemaVersion": 39,
        "version": 2,
        "tags": ["npu_dispatch"],
        "refresh": "15s",
        "time": {"from": "now-30m", "to": "now"},
        "graphTooltip": 1,
        "links": [
            _link("Live page", _PAGE, "Of the chosen host's exporter."),
            _link(
                "Timeline of the last 5 s",
                f"{_PAGE}api/v1/trace?seconds=5",
                "Of the chosen host: a file for ui.perfetto.dev. Needs NPU_TRACE=1.",
            ),
            _link("What to do", "DOCS/observability.md", "Verdicts, metrics, alerts."),
        ],
        "annotations": {"list": [_restarts()]},
        "templating": {"list": _variables()},
        "panels": _panels(),
    }
    return json.dumps(board, indent=1) + "\n"


def _restarts() -> dict[str, Any]:
    started = _expand("process_info{P} unless process_info{P} offset 1m")
    return {
        "name": "started",
        "enable": True,
        "datasource": _SOURCE,
        "iconColor": "orange",
        "expr": started,
    }
