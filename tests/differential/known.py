"""Differences that are known, so that a run is red for new ones only.

Each has a program in corpus/known/ that shows it; test_corpus.py fails when it
no longer does, so that an entry whose bug is mended is removed.
"""

from __future__ import annotations

import re
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
    return "to a single memory location" in d.cpu + d.npu


def _strides(d: Difference) -> bool:
    if d.kind != "strides":
        return False
    strides, sizes = (re.findall(r"\d+", p) for p in d.cpu.split("of shape"))
    if "out=" in d.step or "copysign" in d.step:
        return True
    channels_last = len(sizes) > 3 and strides[1] == "1"
    return channels_last or bool({"0", "1"} & set(sizes))


def _own_input_resized(d: Difference) -> bool:
    return d.kind == "error only on cpu" and "the broadcast shape" in d.cpu


def _late_argument_error(d: Difference) -> bool:
    return d.kind == "error that comes late" and "index_select()" in d.cpu


def _preserve_format(d: Difference) -> bool:
    return "memory formatPreserve" in d.cpu


KNOWN = [
    Known("overlap", "torch's checks see no shared storage", _overlap),
    Known("strides", "meta functions choose them, or history", _strides),
    Known("own_input_resized", "meta functions see two tensors", _own_input_resized),
    Known("late_argument_error", "only the kernel checks", _late_argument_error),
    Known("preserve_format", "resize_ has words of its own", _preserve_format),
]


def explains(difference: Difference) -> str | None:
    """Return the name of the known difference that this one is, or None."""
    for entry in KNOWN:
        if entry.matches(difference):
            return entry.name
    return None
