"""Tables in terminals, and pages from a template, into which values are put as text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

# Each function imports what it needs, which takes a twentieth of a second.
if TYPE_CHECKING:
    from rich.console import Console

_PACKAGE = Path(__file__).parents[1]
_STYLE = Path(__file__).parent / "style"


class Table(NamedTuple):
    title: str
    head: Sequence[str]  # (): none is shown
    rows: Sequence[Sequence[str]]
    left: int = 1  # columns of words; those behind them are figures


def console(*, stderr: bool = False) -> Console:
    """Return a console for names and errors that may look like markup: list[int]."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False, emoji=False)


def print_table(to: Console, table: Table, of: str = "") -> None:
    """Print a table; `of`: what stands before its title."""
    from rich import table as rich

    shown = rich.Table(
        title=f"{of}{table.title}", title_style="bold", show_header=bool(table.head)
    )
    for i, name in enumerate(table.head or [""] * len(table.rows[0])):
        shown.add_column(
            name,
            style=None if i else "cyan",
            justify="left" if i < table.left else "right",
            overflow="fold",
        )
    for cells in table.rows:
        shown.add_row(*cells)
    to.print(shown)


def page(template: str, title: str, *, style: str = "", **values: object) -> str:
    """Return a page: one file that loads nothing and runs no script.

    The template, a file of this package, extends "drawing/page.html".
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_PACKAGE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    common = [(_STYLE / name).read_text() for name in ("palette.css", "report.css")]
    given = {"title": title, "style": "".join([*common, style]), **values}
    return environment.get_template(template).render(given)
