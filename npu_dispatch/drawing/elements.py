"""Elements of HTML and SVG, whose texts and attributes the library escapes."""

from __future__ import annotations

from xml.etree import ElementTree
from xml.etree.ElementTree import Element

__all__ = ["Child", "element", "html_text", "svg_text"]

Child = Element | str


def element(tag: str, *children: Child, **attributes: object) -> Element:
    """Return an element. `stroke_width=1` means stroke-width, and `class_` class.

    A number is written with six digits at most, and what is None is left out.
    """
    made = Element(tag)
    for name, value in attributes.items():
        if value is not None:
            text = f"{value:.6g}" if isinstance(value, float) else str(value)
            made.set(name.rstrip("_").replace("_", "-"), text)
    for child in children:
        if not isinstance(child, str):
            made.append(child)
        elif len(made):
            made[-1].tail = (made[-1].tail or "") + child
        else:
            made.text = (made.text or "") + child
    return made


def html_text(root: Element) -> str:
    """Return a whole page of HTML."""
    text = ElementTree.tostring(root, encoding="unicode", method="html")
    return f"<!doctype html>\n{text}\n"


def svg_text(root: Element) -> str:
    """Return a picture as a file of its own."""
    root.set("xmlns", "http://www.w3.org/2000/svg")
    return ElementTree.tostring(root, encoding="unicode") + "\n"
