"""DoRA on Llama: 5 training steps."""

import peft
import tiny

LIBRARY = "peft"
NEEDS = ("transformers",)


def run(device):
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], use_dora=True)
    model = peft.get_peft_model(tiny.llama(), config)
    return tiny.steps(model, device, tiny.causal())
