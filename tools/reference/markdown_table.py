"""Rows of a table in Markdown."""

from __future__ import annotations

from collections.abc import Iterator


def table(heads: str, rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    """Yield a table's lines; `heads` are words between `|`."""
    yield f"| {heads} |"
    yield "|---" * (heads.count("|") + 1) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def plain(text: str) -> str:
    """Return words of a command's help, in which `*` is a star and `|` a bar."""
    return text.replace("*", "\\*").replace("|", "\\|")
