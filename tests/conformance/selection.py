"""Which operators does a run check?"""

from __future__ import annotations

from collections.abc import Iterable

THIRDS = 3
# What a run that is not over all operators has: the same on each run.
FIXED_THIRD = 0
FIXED_SEED = 1


def third(names: Iterable[str], which: int) -> list[str]:
    """Return every third name from `which` on, of the names in order."""
    return sorted(names)[which::THIRDS]
