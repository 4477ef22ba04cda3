"""a moving average of the weights over 5 training steps."""

import torch
from torch_ema import ExponentialMovingAverage

LIBRARY = "torch-ema"


def run(device):
    model = torch.nn.Linear(4, 1).to(device)
    average = ExponentialMovingAverage(model.parameters(), decay=0.9)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.rand(8, 4).to(device)
    for _ in range(5):
        loss = (model(x) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update()
    with average.average_parameters():
        averaged = model(x).sum().item()
    return [loss.item(), averaged, model(x).sum().item()]
