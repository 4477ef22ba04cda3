"""Llama with gradient checkpointing: 5 training steps."""

import tiny

LIBRARY = "transformers"


def run(device):
    model = tiny.llama()
    model.gradient_checkpointing_enable()
    return tiny.steps(model, device, tiny.causal())
