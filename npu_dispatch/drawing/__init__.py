"""Pages and pictures from templates, into which values are put as text."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment

_PACKAGE = Path(__file__).parents[1]
_STYLE = Path(__file__).parent / "style"


@cache
def _environment() -> Environment:
    # A twentieth of a second, which only those pay who draw.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(_PACKAGE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def drawn(template: str, **values: object) -> str:
    """Return a file of this package, with the values in it."""
    return _environment().get_template(template).render(values)


def page(template: str, title: str, *, style: str = "", **values: object) -> str:
    """Return a page: one file that loads nothing and runs no script.

    The template extends "drawing/templates/page.html".
    """
    common = [(_STYLE / name).read_text() for name in ("palette.css", "report.css")]
    return drawn(template, title=title, style="".join([*common, style]), **values)
