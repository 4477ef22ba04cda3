"""linear layers with int8 weights."""

import torch
from torchao.quantization import Int8WeightOnlyConfig, quantize_

LIBRARY = "torchao"


def run(device):
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)
    ).to(device)
    x = torch.rand(4, 64).to(device)
    before = model(x)
    quantize_(model, Int8WeightOnlyConfig())
    after = model(x)
    return [before.sum().item(), *after.detach().flatten().tolist()]
