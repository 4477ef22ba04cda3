"""Why a test of others fails here: classes of failures, each with its sentence."""

from __future__ import annotations

import re

# A pattern of "test: message", and why it is so. The first that fits counts.
REASONS: tuple[tuple[str, str], ...] = ()
UNEXPLAINED = "not explained yet"


def reason(test: str, message: str) -> str:
    """Return the class of a failure."""
    for pattern, why in REASONS:
        if re.search(pattern, f"{test}: {message}"):
            return why
    return UNEXPLAINED
