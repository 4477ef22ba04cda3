"""Train a CNN on handwritten digits, fed by a DataLoader with pinned memory.

npu-dispatch run examples/train_digits.py --device npu
"""

from __future__ import annotations

import click
import torch
import torch.nn.functional as F
from rich.console import Console
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

console = Console(stderr=True)


def datasets(seed: int) -> tuple[torch.utils.data.Dataset, torch.utils.data.Dataset]:
    """Return 1,437 images to learn from and 360 to be tested on."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    generator = torch.Generator().manual_seed(seed)
    train, test = random_split(
        TensorDataset(images, labels), [1437, 360], generator=generator
    )
    return train, test


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


@torch.no_grad()
def accuracy(model: nn.Module, loader: DataLoader, device: str) -> float:
    model.eval()
    right = torch.zeros((), device=device)
    for images, labels in loader:
        guess = model(images.to(device, non_blocking=True)).argmax(1)
        right += (guess == labels.to(device, non_blocking=True)).sum()
    model.train()
    return right.item() / len(loader.dataset)


@click.command()
@click.option("--device", default="npu", show_default=True)
@click.option("--epochs", default=5, show_default=True)
@click.option("--batch", default=64, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--workers", default=0, show_default=True, help="DataLoader processes.")
def main(device: str, epochs: int, batch: int, seed: int, workers: int) -> None:
    """Train, and print the accuracy on the test images after each epoch."""
    if device.startswith("npu"):
        import npu_dispatch  # noqa: F401 (a no-op where torch has loaded it)
    torch.manual_seed(seed)
    train, test = datasets(seed)
    pin = device != "cpu"
    loader = DataLoader(train, batch, shuffle=True, pin_memory=pin, num_workers=workers)
    test_loader = DataLoader(test, 360, pin_memory=pin)
    model = network().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(epochs):
        total = torch.zeros((), device=device)
        for images, labels in loader:
            images = images.to(device, non_blocking=True)
            labels = labels.to(device, non_blocking=True)
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        mean = total.item() / len(loader)
        right = accuracy(model, test_loader, device)
        console.print(f"epoch {epoch + 1}: loss {mean:.3f}, test accuracy {right:.1%}")
    print(f"accuracy {right:.4f}")


if __name__ == "__main__":
    main()
