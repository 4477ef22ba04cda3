"""`npu-dispatch run --cuda` with a variational autoencoder for cuda: 9 training steps.

An autoencoder of images, written for CUDA.
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

LIBRARY = "torch"
UNCHANGED = "--cuda"


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(144, 32)
        self.mean, self.log_variance = nn.Linear(32, 4), nn.Linear(32, 4)
        self.decoder = nn.Sequential(
            nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 144), nn.Sigmoid()
        )

    def forward(self, x, noise):
        hidden = self.encoder(x).relu()
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        return self.decoder(mean + noise * (log_variance / 2).exp()), mean, log_variance


def run(device):
    cuda = device == "cuda"
    options = {"num_workers": 1, "pin_memory": True} if cuda else {}
    images = TensorDataset(torch.rand(48, 1, 12, 12), torch.randn(48, 4))
    loader = DataLoader(images, batch_size=16, **options)
    model = Autoencoder()
    if cuda:
        torch.cuda.manual_seed_all(0)
        torch.backends.cudnn.benchmark = True
        model.cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(3):
        for x, noise in loader:
            if cuda:
                x, noise = x.cuda(non_blocking=True), noise.cuda(non_blocking=True)
            x = x.flatten(1)
            made, mean, log_variance = model(x, noise)
            unlike = F.binary_cross_entropy(made, x, reduction="sum")
            apart = 1 + log_variance - mean.square() - log_variance.exp()
            loss = unlike - apart.sum() / 2
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[-1] < losses[0]
    return losses, loss
