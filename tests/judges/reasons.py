"""Why a test of others fails here: classes of failures, each with its sentence."""

from __future__ import annotations

import re

# A pattern of "test: message", and why it is so. The first that fits counts.
REASONS: tuple[tuple[str, str], ...] = (
    (
        r"which has no quantized tensors",
        "quantized dtypes: torch's own quantized tensors are deprecated, and the device "
        "has none; the error says what to use instead",
    ),
    (
        r"test_op_errors\[.*(out of bounds|index \d+ is out)",
        "an index that is out of bounds: the kernel finds it, so that the error comes "
        "late, as on a GPU",
    ),
)
UNEXPLAINED = "not explained yet"


def reason(test: str, message: str) -> str:
    """Return the class of a failure."""
    for pattern, why in REASONS:
        if re.search(pattern, f"{test}: {message}"):
            return why
    return UNEXPLAINED
