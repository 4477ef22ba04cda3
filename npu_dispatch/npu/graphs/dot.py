"""A graph in Graphviz's language: a box for each task, a cluster for each stream."""

from __future__ import annotations

from typing import Any

__all__ = ["dot"]

Node = dict[str, Any]

_MOST_SHAPES = 5


def dot(nodes: list[Node]) -> str:
    """Return the text for what NPUGraph.nodes() returns."""
    lines = ["digraph graph_ {", "  node [shape=box, fontname=sans, fontsize=10];"]
    for stream in dict.fromkeys(node["stream"] for node in nodes):
        lines.append(f'  subgraph "cluster_{stream}" {{ label="stream {stream}";')
        lines += [
            f'    n{i} [label="{_label(i, node)}"];'
            for i, node in enumerate(nodes)
            if node["stream"] == stream
        ]
        lines.append("  }")
    lines += [
        f"  n{before} -> n{i};"
        for i, node in enumerate(nodes)
        for before in node["after"]
    ]
    return "\n".join([*lines, "}"]) + "\n"


def _label(index: int, node: Node) -> str:
    shapes = ["x".join(map(str, t["shape"])) or "scalar" for t in node["tensors"]]
    more = " ..." if len(shapes) > _MOST_SHAPES else ""
    parts = (
        f"{index} {node['op']}",
        " ".join(shapes[:_MOST_SHAPES]) + more,
        node["line"].rpartition("/")[2],
    )
    return "\\n".join(filter(None, parts)).replace('"', "'")
