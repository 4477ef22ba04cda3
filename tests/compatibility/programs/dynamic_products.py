"""linear layers with int8 weights and int8 activations."""

import torch
from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

LIBRARY = "torchao"


def run(device):
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32)
    ).to(device)
    x = torch.rand(32, 64).to(device)
    before = model(x)
    quantize_(model, Int8DynamicActivationInt8WeightConfig())
    after = model(x)
    assert not after.equal(before)
    return [before.sum().item(), *after.detach().flatten().tolist()]
