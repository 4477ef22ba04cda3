"""Figures as people read them: three digits and a unit."""

from __future__ import annotations

from pathlib import Path

__all__ = ["factor_text", "line_text", "memory_text", "size_text", "time_text"]

_TIMES = (("µs", 1.0), ("ms", 1e3), ("s", 1e6))
_SIZES = (("KiB", 2.0**10), ("MiB", 2.0**20), ("GiB", 2.0**30))


def time_text(us: float, least: float = 0.0, most: float = 0.0) -> str:
    """Return "5.28 ms", and a range behind it where one is known."""
    unit, size = _unit(us, _TIMES)
    text = f"{_digits(us / size)} {unit}"
    if not most:
        return text
    return f"{text} ({_digits(least / size)}\N{EN DASH}{_digits(most / size)})"


def size_text(size: float) -> str:
    unit, of = _unit(size, _SIZES)
    return f"{_digits(size / of)} {unit}"


def memory_text(used: int, there: int, too_much: int = 0) -> str:
    """Return "12.3 of 80 GiB": a device's memory is mostly a round number."""
    if too_much:
        return f"{memory_text(used, there)}, {size_text(too_much)} too much"
    if not there:
        return size_text(used)
    unit, size = _unit(there, _SIZES)
    whole = f"{there / size:.3g} {unit}"
    if _unit(used, _SIZES)[0] != unit:
        return f"{size_text(used)} of {whole}"
    return f"{_digits(used / size)} of {whole}"


def factor_text(factor: float) -> str:
    return f"{_digits(factor)}x"


def line_text(where: str) -> str:
    """Return "train.py:12" of "/home/ada/train.py:12 in step"."""
    return Path(where.partition(" in ")[0]).name


def _unit(value: float, units: tuple[tuple[str, float], ...]) -> tuple[str, float]:
    """Return the largest unit of which there is at least one, with three digits."""
    fitting = [unit for unit in units if value >= 0.9995 * unit[1]]
    return fitting[-1] if fitting else units[0]


def _digits(value: float) -> str:
    """Return three significant digits; no more decimals than tell anything."""
    if value < 0.0005:
        return "0"
    if value >= 999.5:
        return f"{value:,.0f}"
    return f"{value:#.3g}".rstrip(".")
