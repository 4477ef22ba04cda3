"""Pictures of a graph: JSON, Graphviz, SVG, and an HTML page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from npu_dispatch.drawing import drawn, page

Node = dict[str, Any]

_BOX, _GAP, _COLUMN, _TOP = 34, 16, 380, 48  # pixels
_COLOURS = ("#dbeafe", "#dcfce7", "#fef3c7", "#fae8ff", "#fee2e2", "#e0e7ff")


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
    return drawn("npu/graphs/picture.svg", **_places(nodes))


def _html(nodes: list[Node]) -> str:
    total = _size(sum(node["bytes"] for node in nodes))
    return page("npu/graphs/page.html", "graph", total=total, **_places(nodes))


def _places(nodes: list[Node]) -> dict[str, Any]:
    """Return what is where in the picture."""
    streams = _streams(nodes)
    column = {stream: 20 + i * _COLUMN for i, stream in enumerate(streams)}
    left = [column[node["stream"]] for node in nodes]
    top = [_TOP + i * (_BOX + _GAP) for i in range(len(nodes))]
    middle = (_COLUMN - 40) // 2
    edges = [
        (left[before] + middle, top[before] + _BOX, left[i] + middle, top[i])
        for i, node in enumerate(nodes)
        for before in node["after"]
    ]
    boxes = [
        {
            "x": left[i],
            "y": top[i],
            "width": _COLUMN - 40,
            "height": _BOX,
            "colour": _COLOURS[streams.index(node["stream"]) % len(_COLOURS)],
            "tooltip": _tooltip(i, node),
            "name": f"{i} {node['op']}",
            "detail": " · ".join(
                filter(
                    None, (_shapes(node), _size(node["bytes"]), _place(node["line"]))
                )
            ),
        }
        for i, node in enumerate(nodes)
    ]
    return {
        "width": 40 + max(1, len(streams)) * _COLUMN,
        "height": _TOP + max(1, len(nodes)) * (_BOX + _GAP),
        "columns": [(x, stream) for stream, x in column.items()],
        "edges": edges,
        "boxes": boxes,
    }
