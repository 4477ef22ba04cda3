"""Where a generator's decisions come from: bytes that hypothesis draws.

One draw for a whole program costs a fiftieth of one draw for each decision. A
step reads a chunk of its own, so that a chunk less is a step less; what is
missing reads as 0, the simplest choice everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
CHUNK = 20


class Choices:
    """The decisions of one step."""

    def __init__(self, chunk: bytes) -> None:
        self._chunk = chunk
        self._next = 0

    def below(self, n: int) -> int:
        """Return one of 0, ..., n - 1, where n is at most 256."""
        self._next += 1
        if self._next > len(self._chunk):
            return 0
        return self._chunk[self._next - 1] % n

    def between(self, low: int, high: int) -> int:
        """Return one of low, ..., high."""
        return low + self.below(high - low + 1)

    def pick(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def chance(self, one_in: int) -> bool:
        return self.below(one_in) == one_in - 1


def steps(drawn: bytes) -> list[Choices]:
    """Cut what was drawn into steps."""
    return [
        Choices(drawn[start : start + CHUNK]) for start in range(0, len(drawn), CHUNK)
    ]
