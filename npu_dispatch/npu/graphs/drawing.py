"""Pictures of a graph: JSON, Graphviz, SVG, and an HTML page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from npu_dispatch.drawing import element, report, svg_text

Node = dict[str, Any]

_BOX, _GAP, _COLUMN, _TOP = 34, 16, 380, 48  # pixels
_LINE = "#475569"
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
    return svg_text(_picture(nodes))


def _picture(nodes: list[Node]) -> Element:
    streams = _streams(nodes)
    column = {stream: i for i, stream in enumerate(streams)}
    places = [
        (20 + column[node["stream"]] * _COLUMN, _TOP + i * (_BOX + _GAP))
        for i, node in enumerate(nodes)
    ]
    width = 40 + max(1, len(streams)) * _COLUMN
    height = _TOP + max(1, len(nodes)) * (_BOX + _GAP)
    names = [
        element(
            "text",
            f"stream {stream}",
            x=20 + i * _COLUMN,
            y=28,
            font_size=14,
            font_weight="bold",
        )
        for stream, i in column.items()
    ]
    edges = [
        _edge(places[before], places[i])
        for i, node in enumerate(nodes)
        for before in node["after"]
    ]
    boxes = [
        _box(i, node, places[i], _COLOURS[column[node["stream"]] % len(_COLOURS)])
        for i, node in enumerate(nodes)
    ]
    return element(
        "svg",
        element("defs", _arrow_head()),
        element("rect", width=width, height=height, fill="white"),
        *names,
        *edges,
        *boxes,
        font_family="sans-serif",
        font_size=11,
        width=width,
        height=height,
        viewBox=f"0 0 {width} {height}",
    )


def _arrow_head() -> Element:
    return element(
        "marker",
        element("path", d="M0 0L8 4L0 8z", fill=_LINE),
        id="tip",
        viewBox="0 0 8 8",
        refX=8,
        refY=4,
        markerWidth=7,
        markerHeight=7,
        orient="auto",
    )


def _edge(before: tuple[int, int], after: tuple[int, int]) -> Element:
    middle = (_COLUMN - 40) // 2
    x1, x2 = before[0] + middle, after[0] + middle
    y1, y2 = before[1] + _BOX, after[1]
    return element(
        "path",
        d=f"M{x1} {y1}C{x1} {y1 + 24} {x2} {y2 - 24} {x2} {y2}",
        fill="none",
        stroke=_LINE,
        stroke_dasharray=None if x1 == x2 else "5 3",
        marker_end="url(#tip)",
    )


def _box(index: int, node: Node, place: tuple[int, int], colour: str) -> Element:
    x, y = place
    detail = " · ".join(
        filter(None, (_shapes(node), _size(node["bytes"]), _place(node["line"])))
    )
    return element(
        "g",
        element("title", _tooltip(index, node)),
        element(
            "rect",
            x=x,
            y=y,
            width=_COLUMN - 40,
            height=_BOX,
            rx=5,
            fill=colour,
            stroke="#64748b",
        ),
        element("text", f"{index} {node['op']}", x=x + 8, y=y + 14, font_weight="bold"),
        element("text", detail, x=x + 8, y=y + 28, fill="#334155", font_size=9),
    )


def _html(nodes: list[Node]) -> str:
    total = _size(sum(node["bytes"] for node in nodes))
    return report(
        "graph",
        element("h1", f"{len(nodes)} nodes on {len(_streams(nodes))} stream(s)"),
        element(
            "p",
            f"{total} of tensors read and written by a replay. Dashed: one stream "
            "waits for another. Point at a node for its tensors.",
            class_="dim",
        ),
        element("section", element("div", _picture(nodes), class_="scrolls")),
    )
