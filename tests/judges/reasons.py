"""Why a test of others fails here: classes of failures, each with its sentence."""

from __future__ import annotations

import re

# Patterns of "test: message", and why it is so. The first that fits counts.
REASONS = {
    r"which has no quantized tensors": (
        "torch's quantized tensors, which are deprecated there: the device has none, "
        "and the error says what to use instead"
    ),
    r"test_op_errors\[.*out of bounds": (
        "an index out of bounds: the kernel finds it, so that the error comes late, as "
        "on a GPU"
    ),
}
UNEXPLAINED = "not explained yet"


def reason(test: str, message: str) -> str:
    """Return the class of a failure."""
    for pattern, why in REASONS.items():
        if re.search(pattern, f"{test}: {message}"):
            return why
    return UNEXPLAINED
