"""How far apart the ticks of an axis are."""

from __future__ import annotations

import math

__all__ = ["round_step"]


def round_step(about: float) -> float:
    """Return 1, 2 or 5 times a power of ten, at least `about`."""
    power = 10.0 ** math.floor(math.log10(about))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= about * (1 - 1e-9))
