"""PiSSA and OLoRA on Llama: 5 training steps each."""

import peft
import tiny
import torch

LIBRARY = "peft"
NEEDS = ("transformers",)


def run(device):
    found = []
    for way in ("pissa", "olora"):
        torch.manual_seed(0)
        config = peft.LoraConfig(
            r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=way
        )
        # On the device, so that it decomposes the weights.
        model = peft.get_peft_model(tiny.llama().to(device), config)
        found += tiny.steps(model, device, tiny.causal())
    return found
