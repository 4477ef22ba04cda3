"""`npu-dispatch run --cuda` with a convolutional GAN for cuda: 4 training steps.

Two networks of convolutions that train each other, written for CUDA.
"""

import torch
from torch import nn

LIBRARY = "torch"
UNCHANGED = "--cuda"


def generator():
    return nn.Sequential(
        nn.ConvTranspose2d(8, 16, 4, 1, 0, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(True),
        nn.ConvTranspose2d(16, 8, 4, 2, 1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(True),
        nn.ConvTranspose2d(8, 3, 4, 2, 1, bias=False),
        nn.Tanh(),
    )


def critic():
    return nn.Sequential(
        nn.Conv2d(3, 8, 4, 2, 1, bias=False),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(8, 16, 4, 2, 1, bias=False),
        nn.BatchNorm2d(16),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(16, 1, 4, 1, 0, bias=False),
        nn.Sigmoid(),
        nn.Flatten(0),
    )


def start(module):
    if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(module.weight, 0.0, 0.02)
    elif isinstance(module, nn.BatchNorm2d):
        nn.init.normal_(module.weight, 1.0, 0.02)
        nn.init.zeros_(module.bias)


def run(device):
    device = torch.device(device, 0)
    makes, judges = generator().apply(start), critic().apply(start)
    makes, judges = makes.to(device), judges.to(device)
    criterion = nn.BCELoss()
    steps = [
        torch.optim.Adam(net.parameters(), lr=2e-4, betas=(0.5, 0.999))
        for net in (judges, makes)
    ]
    losses = []
    for _ in range(4):
        real = (torch.rand(6, 3, 16, 16) * 2 - 1).to(device)
        noise = torch.randn(6, 8, 1, 1).to(device)
        true = torch.full((6,), 1.0, dtype=torch.float, device=device)
        judges.zero_grad()
        on_real = criterion(judges(real), true)
        on_real.backward()
        made = makes(noise)
        on_made = criterion(judges(made.detach()), torch.zeros_like(true))
        on_made.backward()
        steps[0].step()
        makes.zero_grad()
        fooled = criterion(judges(made), true)
        fooled.backward()
        steps[1].step()
        losses += [on_real.item(), on_made.item(), fooled.item()]
    return [*losses, made.abs().mean().item()], made
