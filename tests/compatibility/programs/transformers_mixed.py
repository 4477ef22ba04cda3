"""Trainer on the tiny GPT-2 with bf16=True."""

import torch
import transformers_trainer
from torch.nn.modules.module import register_module_forward_hook

LIBRARY = "transformers"
NEEDS = ("accelerate",)
ALIAS = True
RELATIVE = 0.02


def run(device):
    kinds = set()

    def look(module, _, result):
        if isinstance(module, torch.nn.Linear):
            kinds.add(result.dtype)

    with register_module_forward_hook(look):
        losses = transformers_trainer.run(device, bf16=True)
    assert kinds == {torch.bfloat16}, kinds
    return losses
