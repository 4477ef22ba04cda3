"""The models of bench/train.py that no example trains."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import nn


class Residual(nn.Module):
    """Two 3x3 convolutions beside a shortcut, as in ResNet-18."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                nn.BatchNorm2d(outputs),
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.first_norm(self.first(x)))
        return F.relu(self.second_norm(self.second(y)) + self.shortcut(x))


def resnet18() -> nn.Module:
    """ResNet-18's layers and widths for images of 32x32: 11 million weights."""
    widths = (64, 64, 128, 256, 512)
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 3, 1, 1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
    ]
    for i, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
        layers.append(Residual(inputs, outputs, 1 if i == 0 else 2))
        layers.append(Residual(outputs, outputs, 1))
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)
    )


class Tagger(nn.Module):
    """Two LSTM layers of width 64 and a linear head."""

    def __init__(self, features: int = 32, hidden: int = 64) -> None:
        super().__init__()
        self.lstm = nn.LSTM(features, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0])
