"""A report: one HTML file that loads nothing, on light and on dark screens."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path
from xml.etree.ElementTree import Element

from npu_dispatch.drawing.elements import Child, element, html_text

__all__ = ["bar", "legend", "report", "table"]

_STYLE = Path(__file__).parent / "style"


def report(title: str, *body: Child, style: str = "", script: str = "") -> str:
    """Return the text of a page. No script runs in it but `script`."""
    common = [(_STYLE / name).read_text() for name in ("palette.css", "report.css")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"'sha256-{digest}'" if script else "'none'"
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
        f"script-src {allowed}"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width"),
        element("meta", name="color-scheme", content="light dark"),
        element("link", rel="icon", href="data:,"),
        element("title", title),
        element("style", *common, style),
    )
    whole = element("body", *body)
    if script:
        whole.append(element("script", script))
    return html_text(element("html", head, whole, lang="en"))


def table(head: Sequence[str], rows: Sequence[Sequence[Child]]) -> Element:
    """Return a table; columns but the first are figures, and stand at the right."""
    return element(
        "div",
        element(
            "table",
            element("thead", element("tr", *(element("th", cell) for cell in head))),
            element(
                "tbody",
                *(element("tr", *(element("td", c) for c in row)) for row in rows),
            ),
        ),
        class_="scrolls",
    )


def bar(parts: Sequence[tuple[str, float, str]]) -> Element:
    """Return a bar of (name, share of 1, colour) with its legend."""
    pieces = [
        element("i", title=f"{name}: {share:.1%}", style=_painted(colour, share))
        for name, share, colour in parts
    ]
    named = [(f"{name} {share:.0%}", colour) for name, share, colour in parts]
    return element("div", element("div", *pieces, class_="bar"), legend(named))


def legend(entries: Sequence[tuple[str, str]]) -> Element:
    """Return a list of (name, colour)."""
    return element(
        "ul",
        *(
            element("li", element("i", style=_painted(colour)), name)
            for name, colour in entries
        ),
        class_="legend",
    )


def _painted(colour: str, share: float | None = None) -> str:
    width = "" if share is None else f";width:{100 * share:.4g}%"
    return f"background:var({colour}){width}"
