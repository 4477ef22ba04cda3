import tiny
import torch
from transformers import BertConfig, BertForMaskedLM


def run(device):
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    mask = torch.ones(4, 16, dtype=torch.long)
    mask[:, 12:] = 0
    inputs = {**tiny.causal(), "attention_mask": mask}
    return tiny.steps(BertForMaskedLM(config), device, inputs)
