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


def _overlap(d: Difference) -> bool:
    return "refer to a single memory location" in d.cpu + d.npu


def _strides(d: Difference) -> bool:
    return d.kind == "strides"



KNOWN = [
    Known("overlap", "torch's checks of overlap see no shared storage", _overlap),
    Known("strides", "a result's layout depends on earlier calls", _strides),
]


def explains(difference: Difference) -> str | None:
    """Return the name of the known difference that this one is, or None."""
    for entry in KNOWN:
        if entry.matches(difference):
            return entry.name
    return None
