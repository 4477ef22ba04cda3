"""A small GPT over bytes: the model, its sizes, and its text.

Built from plain operators, without dropout, so that two devices given the same
weights and batches compute the same numbers.
"""

from __future__ import annotations

import sysconfig
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCABULARY = 256


@dataclass(frozen=True, slots=True)
class Size:
    layers: int
    heads: int
    width: int
    context: int
    batch: int


SIZES = {
    "tiny": Size(layers=2, heads=4, width=64, context=32, batch=4),
    "small": Size(layers=3, heads=4, width=128, context=64, batch=8),
    "wide": Size(layers=2, heads=8, width=512, context=128, batch=8),
}


class Block(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.norm1 = nn.LayerNorm(size.width)
        self.attention = nn.Linear(size.width, 3 * size.width)
        self.project = nn.Linear(size.width, size.width)
        self.norm2 = nn.LayerNorm(size.width)
        self.expand = nn.Linear(size.width, 4 * size.width)
        self.contract = nn.Linear(4 * size.width, size.width)

    def attend(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, time, width = x.shape
        heads = self.attention(x).view(batch, time, 3, self.heads, -1)
        q, k, v = heads.permute(2, 0, 3, 1, 4).unbind(0)
        # Written out: the fused operator picks a different kernel per device.
        scores = (q @ k.transpose(-2, -1)) * (q.size(-1) ** -0.5)
        scores = scores.masked_fill(mask[:time, :time], float("-inf"))
        mixed = F.softmax(scores, dim=-1) @ v
        return self.project(mixed.transpose(1, 2).reshape(batch, time, width))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x + self.attend(self.norm1(x), mask)
        return x + self.contract(F.gelu(self.expand(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.size = size
        self.token = nn.Embedding(VOCABULARY, size.width)
        self.position = nn.Embedding(size.context, size.width)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, VOCABULARY, bias=False)
        above = torch.ones(size.context, size.context, dtype=torch.bool).triu(1)
        self.register_buffer("mask", above, persistent=False)
        self.register_buffer("places", torch.arange(size.context), persistent=False)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        time = tokens.size(1)
        x = self.token(tokens) + self.position(self.places[:time])
        for block in self.blocks:
            x = block(x, self.mask)
        return self.head(self.norm(x))

    def loss(self, tokens: Tensor) -> Tensor:
        """Return the mean loss of predicting each byte from those before it."""
        logits = self(tokens[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    @torch.no_grad()
    def sample(self, prompt: bytes, n: int, generator: torch.Generator) -> bytes:
        """Continue `prompt` by `n` bytes; `generator` is a CPU one."""
        text = list(prompt)
        device = self.head.weight.device
        for _ in range(n):
            tokens = torch.tensor([text[-self.size.context :]], device=device)
            odds = F.softmax(self(tokens)[0, -1] / 0.8, dim=-1).cpu()
            text.append(int(torch.multinomial(odds, 1, generator=generator)))
        return bytes(text)


def standard_library(limit: int = 4_000_000) -> Tensor:
    """Return the sources of Python's standard library as bytes, in file order."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    text = bytearray()
    for path in sorted(folder.glob("*.py")):
        text += path.read_bytes()
    return torch.frombuffer(text[:limit], dtype=torch.uint8)


def draw_batch(text: Tensor, size: Size, generator: torch.Generator) -> Tensor:
    """Return `batch` random windows of context + 1 bytes, on the CPU."""
    last = len(text) - size.context - 1
    starts = torch.randint(last, (size.batch, 1), generator=generator)
    return text[starts + torch.arange(size.context + 1)].long()
