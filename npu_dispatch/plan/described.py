"""TOML files that describe hardware: what sheets and topologies have in common."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

__all__ = [
    "TEXTS",
    "Rule",
    "SheetError",
    "known_keys",
    "number",
    "parsed",
    "section",
    "texts",
]

TEXTS = ("name", "source", "date")
# Whether a number may be 0, whether it must be whole, and the value of a key that is
# left out (None: it must be there).
Rule = tuple[bool, bool, float | None]


class SheetError(ValueError):
    """A file that does not exist, or describes hardware that cannot be."""


def parsed(
    name: str, built_in: Mapping[str, Path], what: str
) -> tuple[Path, dict[str, Any]]:
    """Return a built-in file by its name, or one by its path, and what it says."""
    path = built_in.get(name.lower(), Path(name))
    if not path.is_file():
        raise SheetError(
            f"no {what} {name!r}: neither a file nor one of {', '.join(built_in)}; "
            "a TOML file of your own can be given: see docs/plan.md"
        )
    try:
        return path, tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SheetError(f"{path}: not a TOML file: {error}") from None


def known_keys(path: Path, data: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse a key that no such file has."""
    known = sorted(known)
    if unknown := sorted(set(data) - set(known)):
        raise SheetError(
            f"{path}: {unknown[0]}: no such key; expected {', '.join(known)}"
        )


def texts(path: Path, data: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts that each such file has."""
    for key in TEXTS:
        if not isinstance(data.get(key), str) or not data[key]:
            raise SheetError(f"{path}: {key}: found {data.get(key)!r}, expected a text")
    return {key: data[key] for key in TEXTS}


def section(
    path: Path, data: Mapping[str, Any], name: str, keys: Mapping[str, Rule]
) -> dict[str, float]:
    """Return the numbers of a table."""
    given = data.get(name, {})
    if not isinstance(given, dict):
        raise SheetError(f"{path}: {name}: found {given!r}, expected a table [{name}]")
    if unknown := sorted(set(given) - set(keys)):
        raise SheetError(
            f"{path}: {name}.{unknown[0]}: no such key; expected {', '.join(keys)}"
        )
    return {
        key: number(f"{path}: {name}.{key}", given.get(key), rule)
        for key, rule in keys.items()
    }


def number(where: str, value: object, rule: Rule) -> float:
    """Return a number as its rule has it."""
    may_be_zero, whole, fallback = rule
    value = fallback if value is None else value
    expected = "a whole number" if whole else "a number"
    expected += " of at least 0" if may_be_zero else " above 0"
    found = "nothing" if value is None else repr(value)
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not math.isfinite(value)
        or value < 0
        or (value == 0 and not may_be_zero)
        or (whole and value != int(value))
    ):
        raise SheetError(f"{where}: found {found}, expected {expected}")
    return value
