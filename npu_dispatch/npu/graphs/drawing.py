"""Pictures of a graph: JSON, Graphviz, SVG, and an HTML page."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

Node = dict[str, Any]

_BOX, _GAP, _COLUMN = 34, 16, 380  # pixels
_COLOURS = ("#dbeafe", "#dcfce7", "#fef3c7", "#fae8ff", "#fee2e2", "#e0e7ff")

_OPEN = (
    '<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" '
    'font-size="11" width="{width}" height="{height}" '
    'viewBox="0 0 {width} {height}">'
)
_ARROW = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
    'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#475569"/>'
    "</marker></defs>"
)


def write(nodes: list[Node], path: Path) -> None:
    """Write the nodes in the format that the path's suffix names."""
    writers = {".dot": _dot, ".svg": _svg, ".html": _html}
    path.write_text(writers.get(path.suffix.lower(), _json)(nodes))


def _json(nodes: list[Node]) -> str:
    indexed = [{"index": i, **node} for i, node in enumerate(nodes)]
    return json.dumps({"nodes": indexed}, indent=1) + "\n"


def _size(count: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024  # type: ignore[assignment]
    return f"{count:.1f} GiB"


def _shapes(node: Node) -> str:
    parts = ["x".join(map(str, t["shape"])) or "scalar" for t in node["tensors"]]
    shown = " ".join(parts[:5])
    return shown + (" ..." if len(parts) > 5 else "")


def _place(line: str) -> str:
    return line.rpartition("/")[2]


def _tooltip(index: int, node: Node) -> str:
    lines = [f"node {index}: {node['op']}", f"stream {node['stream']}", node["line"]]
    lines += [
        f"{t['access']} {t['shape']} strides {t['strides']} at {t['address']:#x}"
        for t in node["tensors"]
    ]
    return "\n".join(filter(None, lines))


def _dot(nodes: list[Node]) -> str:
    lines = ["digraph graph_ {", "  node [shape=box, fontname=sans, fontsize=10];"]
    for stream in _streams(nodes):
        lines.append(f'  subgraph "cluster_{stream}" {{ label="stream {stream}";')
        for i, node in enumerate(nodes):
            if node["stream"] != stream:
                continue
            text = "\\n".join(
                filter(None, (f"{i} {node['op']}", _shapes(node), _place(node["line"])))
            ).replace('"', "'")
            lines.append(f'    n{i} [label="{text}"];')
        lines.append("  }")
    lines += [
        f"  n{before} -> n{i};" for i, n in enumerate(nodes) for before in n["after"]
    ]
    return "\n".join([*lines, "}"]) + "\n"


def _streams(nodes: list[Node]) -> list[int]:
    return list(dict.fromkeys(node["stream"] for node in nodes))


def _svg(nodes: list[Node]) -> str:
    streams = _streams(nodes)
    column = {stream: i for i, stream in enumerate(streams)}
    top = 48

    def left(node: Node) -> int:
        return 20 + column[node["stream"]] * _COLUMN

    def y(index: int) -> int:
        return top + index * (_BOX + _GAP)

    width = 40 + max(1, len(streams)) * _COLUMN
    height = top + max(1, len(nodes)) * (_BOX + _GAP)
    parts = [
        _OPEN.format(width=width, height=height),
        _ARROW,
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    parts += [
        f'<text x="{20 + i * _COLUMN}" y="28" font-size="14" font-weight="bold">'
        f"stream {stream}</text>"
        for stream, i in column.items()
    ]
    box = _COLUMN - 40
    for i, node in enumerate(nodes):
        for before in node["after"]:
            x1, x2 = left(nodes[before]) + box // 2, left(node) + box // 2
            y1, y2 = y(before) + _BOX, y(i)
            dash = "" if x1 == x2 else ' stroke-dasharray="5 3"'
            parts.append(
                f'<path d="M{x1} {y1}C{x1} {y1 + 24} {x2} {y2 - 24} {x2} {y2}" '
                f'fill="none" stroke="#475569"{dash} marker-end="url(#tip)"/>'
            )
    for i, node in enumerate(nodes):
        colour = _COLOURS[column[node["stream"]] % len(_COLOURS)]
        detail = " · ".join(
            filter(None, (_shapes(node), _size(node["bytes"]), _place(node["line"])))
        )
        parts.append(
            f"<g><title>{html.escape(_tooltip(i, node))}</title>"
            f'<rect x="{left(node)}" y="{y(i)}" width="{box}" height="{_BOX}" rx="5" '
            f'fill="{colour}" stroke="#64748b"/>'
            f'<text x="{left(node) + 8}" y="{y(i) + 14}" font-weight="bold">'
            f"{i} {html.escape(node['op'])}</text>"
            f'<text x="{left(node) + 8}" y="{y(i) + 28}" fill="#334155" '
            f'font-size="9">{html.escape(detail)}</text></g>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _html(nodes: list[Node]) -> str:
    total = _size(sum(node["bytes"] for node in nodes))
    return (
        "<!doctype html><meta charset=utf-8><title>graph</title>"
        "<body style='font-family:sans-serif;margin:1em'>"
        f"<h1>{len(nodes)} nodes on {len(_streams(nodes))} stream(s)</h1>"
        f"<p>{total} of tensors read and written by a replay. Dashed: one stream "
        "waits for another. Point at a node for its tensors.</p>"
        f"{_svg(nodes)}</body>\n"
    )
