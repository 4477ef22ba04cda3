"""The models of the training programs in training.py, which no example trains."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def perceptron(*widths: int) -> nn.Sequential:
    """Linear layers of these widths, with ReLU between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Residual(nn.Module):
    """Two 3x3 convolutions beside a shortcut, as in ResNet-18."""

    def __init__(self, inputs: int, outputs: int, stride: int, inplace: bool) -> None:
        super().__init__()
        self.inplace = inplace
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

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.first_norm(self.first(x)), self.inplace)
        return F.relu(self.second_norm(self.second(y)) + self.shortcut(x))


def classifier(width: int, *layers: nn.Module) -> nn.Module:
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)
    )


def resnet18(*stem: nn.Module, inplace: bool = False) -> nn.Module:
    """ResNet-18's layers and widths, after what its images go through first."""
    blocks = []
    for i, (inputs, outputs) in enumerate(itertools.pairwise((64, 64, 128, 256, 512))):
        blocks.append(Residual(inputs, outputs, 1 if i == 0 else 2, inplace))
        blocks.append(Residual(outputs, outputs, 1, inplace))
    return classifier(512, *stem, *blocks)


def small_images() -> nn.Module:
    """ResNet-18 for images of 32x32: 11 million weights."""
    stem = (nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU())
    return resnet18(*stem)


def photographs() -> nn.Module:
    """ResNet-18 as it is used for photographs, with its 7x7 stem."""
    stem = (nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64))
    return resnet18(*stem, nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1), inplace=True)


class Tagger(nn.Module):
    """A recurrent network and a linear head, which names each time step."""

    def __init__(self, network: nn.RNNBase, tags: int) -> None:
        super().__init__()
        self.network = network
        self.head = nn.Linear(network.hidden_size, tags)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.network(x)[0]).flatten(0, 1)


class OfSequences(nn.Module):
    """A network over sequences, whose mean is classified."""

    def __init__(self, network: nn.Module, width: int = 128) -> None:
        super().__init__()
        self.network = network
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        found = self.network(x)
        sequence = found[0] if isinstance(found, tuple) else found
        return self.head(sequence.mean(1))


def transformer(width: int = 128, dropout: float = 0.1) -> nn.Module:
    layer = nn.TransformerEncoderLayer(
        width, 4, dim_feedforward=4 * width, dropout=dropout, batch_first=True
    )
    return nn.TransformerEncoder(layer, 2)


class Inverted(nn.Module):
    """MobileNet's block: widens, filters each channel, narrows."""

    def __init__(self, width: int, stride: int = 1) -> None:
        super().__init__()
        inner = 4 * width
        self.layers = nn.Sequential(
            nn.Conv2d(width, inner, 1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU6(),
            nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU6(),
            nn.Conv2d(inner, width, 1, bias=False),
            nn.BatchNorm2d(width),
        )
        self.adds = stride == 1

    def forward(self, x: Tensor) -> Tensor:
        y = self.layers(x)
        return x + y if self.adds else y


def mobilenet() -> nn.Module:
    blocks = (Inverted(32), Inverted(32), Inverted(32, 2), Inverted(32))
    return classifier(32, nn.Conv2d(3, 32, 3, padding=1), *blocks)


class Attention(nn.Module):
    """Causal self-attention of 8 heads, twice."""

    def __init__(self, width: int = 256, heads: int = 8) -> None:
        super().__init__()
        self.heads = heads
        self.inner = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(2))
        self.outer = nn.ModuleList(nn.Linear(width, width) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for inner, outer in zip(self.inner, self.outer, strict=True):
            parts = inner(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(*parts, is_causal=True)
            x = x + outer(y.transpose(1, 2).flatten(2))
        return x


def two_convolutions(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.GroupNorm(4, outputs),
        nn.SiLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.SiLU(),
    )


class UNet(nn.Module):
    """Two levels down and up again, with concatenated shortcuts."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first = two_convolutions(3, width)
        self.second = two_convolutions(width, 2 * width)
        self.lowest = two_convolutions(2 * width, 4 * width)
        self.up_second = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.join_second = two_convolutions(4 * width, 2 * width)
        self.up_first = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.join_first = two_convolutions(2 * width, width)
        self.head = nn.Conv2d(width, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        second = self.second(F.max_pool2d(first, 2))
        lowest = self.lowest(F.max_pool2d(second, 2))
        y = self.join_second(torch.cat((second, self.up_second(lowest)), 1))
        y = self.join_first(torch.cat((first, self.up_first(y)), 1))
        return self.head(y)
