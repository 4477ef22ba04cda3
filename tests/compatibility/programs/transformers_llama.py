"""Llama: 5 steps, sdpa and eager."""

import tiny

LIBRARY = "transformers"


def run(device):
    found = []
    for attention in ("sdpa", "eager"):
        found += tiny.steps(tiny.llama(attention), device, tiny.causal())
    return found
