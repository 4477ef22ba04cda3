"""save_pretrained(), from_pretrained(device_map=): the loss before and after."""

import tempfile

import tiny
import torch
from transformers import LlamaForCausalLM

LIBRARY = "transformers"
NEEDS = ("accelerate", "safetensors")
ALIAS = True


@torch.no_grad()
def run(device):
    model = tiny.llama().to(device).eval()
    inputs = {name: t.to(device) for name, t in tiny.causal().items()}
    folder = tempfile.mkdtemp()
    model.save_pretrained(folder)
    again = LlamaForCausalLM.from_pretrained(folder, device_map=device).eval()
    assert again.device.type == device
    return [model(**inputs).loss.item(), again(**inputs).loss.item()]
