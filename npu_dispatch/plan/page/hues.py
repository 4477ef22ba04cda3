"""A colour for each operator: the same one in each picture of a page."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

__all__ = ["STYLE", "class_of", "colour_of", "hues_of"]

_HUES = 18
# Degrees of the colour circle. Red is left out, as it means that the host waits.
_FIRST, _APART = 50, 18


def hues_of(names: Iterable[str]) -> dict[str, int]:
    """Return a hue for each name, the important ones first.

    It follows from the name, so that an operator looks the same in another plan. A
    name whose hue is taken gets the next free one, as long as there is one.
    """
    hues: dict[str, int] = {}
    taken: set[int] = set()
    for name in dict.fromkeys(names):
        hue = zlib.crc32(name.encode()) % _HUES
        if len(taken) < _HUES:
            while hue in taken:
                hue = (hue + 1) % _HUES
        hues[name] = hue
        taken.add(hue)
    return hues


def class_of(hue: int) -> str:
    return f"o{hue}"


def colour_of(hue: int) -> str:
    return f"--op-{hue}"


def _variables(light: tuple[float, float]) -> str:
    """Neighbours on the circle differ in lightness, too."""
    return "".join(
        f"{colour_of(i)}:oklch({light[i % 2]} .13 {_FIRST + i * _APART});"
        for i in range(_HUES)
    )


_CLASSES = "\n".join(
    f".{class_of(i)}{{fill:var({colour_of(i)});stroke:var({colour_of(i)})}}"
    for i in range(_HUES)
)
STYLE = f""":root{{{_variables((0.5, 0.68))}}}
@media(prefers-color-scheme:dark){{:root{{{_variables((0.62, 0.8))}}}}}
{_CLASSES}
"""
