"""AdamWScheduleFree, Lion of lion-pytorch: 6 training steps each."""

import tiny
import torch
from lion_pytorch import Lion
from schedulefree import AdamWScheduleFree

LIBRARY = "schedulefree"
NEEDS = ("lion-pytorch",)


def run(device):
    losses = []
    for kind in (Lion, AdamWScheduleFree):
        torch.manual_seed(0)
        model = torch.nn.Linear(8, 1).to(device)
        x = torch.rand(16, 8).to(device)
        optimizer = kind(model.parameters(), lr=1e-2)
        if kind is AdamWScheduleFree:
            optimizer.train()

        def loss(model=model, x=x):
            return (model(x) - 1).square().mean()

        losses += tiny.train(optimizer, loss, 6)
    return losses
