"""LoRA on Llama: 5 training steps, then merge_and_unload()."""

import peft
import tiny
import torch

LIBRARY = "peft"
NEEDS = ("transformers",)


def run(device):
    model = peft.get_peft_model(
        tiny.llama(), peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"])
    )
    losses = tiny.steps(model, device, tiny.causal())
    inputs = {name: t.to(device) for name, t in tiny.causal().items()}
    merged = model.merge_and_unload().eval()
    with torch.no_grad():
        return [*losses, merged(**inputs).loss.item()]
