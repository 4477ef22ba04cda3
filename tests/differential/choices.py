"""Where a generator's decisions come from: bytes that hypothesis draws.

One draw for a whole program costs a fiftieth of one draw for each decision. A
step has a chunk of its own and reads the chunk's digest: hypothesis draws small
bytes far more often than others, and with them the first option everywhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
CHUNK = 4


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
        Choices(hashlib.blake2b(drawn[: start + CHUNK], digest_size=48).digest())
        for start in range(0, len(drawn), CHUNK)
    ]
