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


def _grown(d: Difference) -> bool:
    return (
        d.kind in ("error only on npu", "error only on cpu")
        and "out=" in d.step
        and "to a single memory location" in d.npu + d.cpu
    )


def _matmul(d: Difference) -> bool:
    return d.kind == "version" and "matmul(" in d.step and "out=" in d.step


KNOWN = [
    Known(
        "grown_over_its_input",
        "an out= that lies beside the input and is too small for the result, which "
        "torch is about to forbid",
        _grown,
    ),
    Known(
        "version_of_matmul_out",
        "which of its steps count as writes depends on strides of dimensions of "
        "one element",
        _matmul,
    ),
]


def explains(difference: Difference) -> str | None:
    """Return the name of the known difference that this one is, or None."""
    for entry in KNOWN:
        if entry.matches(difference):
            return entry.name
    return None
