"""T5: 5 training steps."""

import tiny
from transformers import T5Config, T5ForConditionalGeneration

LIBRARY = "transformers"


def run(device):
    config = T5Config(
        vocab_size=64,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        dropout_rate=0.0,
        decoder_start_token_id=0,
    )
    return tiny.steps(T5ForConditionalGeneration(config), device, tiny.causal())
