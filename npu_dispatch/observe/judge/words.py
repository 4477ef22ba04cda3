"""How figures are said: numbers of things, times, memory, and tables of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def counted(number: float, thing: str) -> str:
    """Return "1 wait", "2,000 waits" or "3 processes"."""
    plural = f"{thing}es" if thing.endswith("s") else f"{thing}s"
    return f"{number:,.0f} {thing if round(number) == 1 else plural}"


def age(seconds: float) -> str:
    """Return how long something has lasted: "12 s"."""
    return f"{max(0.0, seconds):,.0f} s"


def duration(seconds: float) -> str:
    """Return what something took: "0.76 ms" or "1.10 s"."""
    return f"{seconds:,.2f} s" if seconds >= 1 else f"{seconds * 1e3:,.2f} ms"


def mib(size: int) -> str:
    """Return a number of bytes as "8.2 MiB"."""
    return f"{size / 2**20:,.1f} MiB"


def table(columns: Mapping[str, str], rows: Iterable[Mapping[str, object]]) -> str:
    """Return aligned text; `columns` are formats of a row's values by their heads.

    The last column is not padded. Other processes' words cannot break lines, nor tell
    the terminal anything.
    """
    cells = [list(columns)]
    cells += [[_plain(f.format_map(row)) for f in columns.values()] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = (
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )
    return "\n".join(lines)


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
