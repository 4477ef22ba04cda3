"""Where a generator's decisions come from: bytes, as many for each step.

Drawn at once: a draw for each decision takes longer than the calls it decides.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
DECISIONS = 48  # of a step, at most; what it asks beyond is the first option


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


def steps(seed: int, number: int, shortest: int, longest: int) -> list[Choices]:
    """Draw the steps of one program of a round."""
    drawn = random.Random(seed << 32 | number)
    count = drawn.randint(shortest, longest)
    return [Choices(drawn.randbytes(DECISIONS)) for _ in range(count)]
