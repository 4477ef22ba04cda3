"""sparsemax(), entmax15(), Entmax15Loss, gradients."""

import torch
from entmax import Entmax15Loss, entmax15, sparsemax

LIBRARY = "entmax"


def run(device):
    x, labels = torch.randn(6, 9).to(device), torch.arange(6).to(device)
    x.requires_grad_()
    found = [
        sparsemax(x, dim=-1).square().sum(),
        entmax15(x, dim=-1).square().sum(),
        Entmax15Loss()(x, labels),
    ]
    sum(found).backward()
    return [*(one.item() for one in found), *x.grad.flatten().tolist()]
