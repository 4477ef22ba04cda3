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
    r"tensor_indices_or_sections to be on cpu": (
        "torch wants tensor_split()'s indices on cpu, whatever the device"
    ),
    r"test_sparse_low_level_compressed_generic_helpers": (
        "the test reads memory that nobody wrote, as indices"
    ),
}
UNEXPLAINED = "not explained yet"


def reason(test: str, message: str) -> str:
    """Return the class of a failure."""
    for pattern, why in REASONS.items():
        if re.search(pattern, f"{test}: {message}"):
            return why
    return UNEXPLAINED
