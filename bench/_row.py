"""A line of a table in README.md or docs/."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a table: words, and the figures that stand beside them."""

    words: str
    bench: str
    cells: tuple[tuple[str, str], ...]  # (case, field)


def of_peers(words: str, bench: str, case: str) -> Row:
    fields = ("ratio", "ratio_to_cpu_one_thread", "ratio_to_cpu_compiled")
    return Row(words, bench, tuple((case, field) for field in fields))


def single(words: str, bench: str, case: str, field: str) -> Row:
    return Row(words, bench, ((case, field),))
