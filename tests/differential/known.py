"""Differences that are known, so that a run is red for new ones only.

Each has a program in corpus/known/ that shows it; test_corpus.py fails when it
no longer does, so that an entry whose bug is mended is removed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.differential.compare import Difference


@dataclass(frozen=True)
class Known:
    """A kind of difference: corpus/known/<name>.py shows it."""

    name: str
    reason: str
    matches: Callable[[Difference], bool]


KNOWN: list[Known] = []


def explains(difference: Difference) -> str | None:
    """Return the name of the known difference that this one is, or None."""
    for entry in KNOWN:
        if entry.matches(difference):
            return entry.name
    return None
