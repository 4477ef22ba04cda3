"""a miner and three losses, gradients."""

import torch
from pytorch_metric_learning import distances, losses, miners

LIBRARY = "pytorch-metric-learning"


def run(device):
    model = torch.nn.Linear(8, 4).to(device)
    x, labels = torch.rand(16, 8).to(device), (torch.arange(16) % 4).to(device)
    miner = miners.MultiSimilarityMiner()
    kinds = (
        losses.TripletMarginLoss(distance=distances.CosineSimilarity()),
        losses.NTXentLoss(),
        losses.ContrastiveLoss(),
    )
    found = []
    for kind in kinds:
        model.zero_grad()
        embedded = model(x)
        loss = kind(embedded, labels, miner(embedded, labels))
        loss.backward()
        found += [loss.item(), model.weight.grad.sum().item()]
    return found
