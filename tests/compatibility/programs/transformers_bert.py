"""BERT, masked language model: 5 training steps."""

import tiny
import torch

LIBRARY = "transformers"


def run(device):
    mask = torch.ones(4, 16, dtype=torch.long)
    mask[:, 12:] = 0
    inputs = {**tiny.causal(), "attention_mask": mask}
    return tiny.steps(tiny.bert("BertForMaskedLM"), device, inputs)
