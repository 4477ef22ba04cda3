"""Llama: 5 training steps with sdpa attention, 5 with eager attention."""

import tiny

LIBRARY = "transformers"


def run(device):
    found = []
    for attention in ("sdpa", "eager"):
        found += tiny.steps(tiny.llama(attention), device, tiny.causal())
    return found
