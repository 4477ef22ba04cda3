"""Mixtral with 4 experts: 5 training steps."""

import tiny
from transformers import MixtralConfig, MixtralForCausalLM

LIBRARY = "transformers"


def run(device):
    config = MixtralConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
        max_position_embeddings=64,
    )
    return tiny.steps(MixtralForCausalLM(config), device, tiny.causal())
