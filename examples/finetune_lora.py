"""Fine-tune a small transformer by LoRA: two thin matrices beside each layer.

    npu-dispatch run examples/finetune_lora.py

A GPT over bytes first learns Python's standard library, then, with its own
weights frozen, text of another kind. Nothing is downloaded. Prints what is
trained, the losses on both devices, and that merging the matrices into the
weights changes no answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import click
import torch
from gpt import GPT, SIZES, draw_batch, standard_library
from torch import Tensor, nn

RANK, SCALE = 4, 2.0


class LoRALinear(nn.Module):
    """A frozen layer and `b @ a`, which begins as zero."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer = layer
        a = torch.empty(RANK, layer.in_features)
        nn.init.kaiming_uniform_(a, a=math.sqrt(5))
        self.a = nn.Parameter(a.to(layer.weight.device))
        self.b = nn.Parameter(layer.weight.new_zeros(layer.out_features, RANK))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + SCALE * (x @ self.a.t() @ self.b.t())

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        self.layer.weight += SCALE * (self.b @ self.a)
        return self.layer


def layers(model: nn.Module, kind: type) -> Iterator[tuple[nn.Module, str, nn.Module]]:
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, kind) and not isinstance(parent, LoRALinear):
                yield parent, name, child


def add_lora(model: GPT) -> None:
    model.requires_grad_(requires_grad=False)
    for parent, name, layer in layers(model, nn.Linear):
        setattr(parent, name, LoRALinear(layer))


def merge_lora(model: GPT) -> None:
    for parent, name, layer in layers(model, LoRALinear):
        setattr(parent, name, layer.merged())


def poems(lines: int = 4000) -> Tensor:
    """Return text that no program looks like."""
    generator = torch.Generator().manual_seed(3)
    words = [
        "the",
        "moon",
        "over",
        "a",
        "river",
        "sleeps",
        "and",
        "winds",
        "of",
        "winter",
        "carry",
        "my",
        "song",
    ]
    drawn = torch.randint(len(words), (lines, 6), generator=generator)
    text = "\n".join(" ".join(words[i] for i in row) for row in drawn.tolist())
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)


def train(model: GPT, text: Tensor, steps: int, rate: float, seed: int) -> Tensor:
    """Return the losses. The device is waited for once, at the end."""
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(seed)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=rate)
    losses = []
    for _ in range(steps):
        batch = draw_batch(text, model.size, generator).pin_memory()
        loss = model.loss(batch.to(device, non_blocking=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).cpu()


def finetuned(device: str, steps: int, seed: int) -> tuple[Tensor, Tensor, float]:
    """Return the losses of both trainings, and how far merging moved an answer."""
    torch.manual_seed(seed)
    model = GPT(SIZES["tiny"])
    first = train(model.to(device), standard_library(), steps, 3e-3, seed)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    torch.manual_seed(seed)
    add_lora(model)
    count = {True: 0, False: 0}
    for parameter in model.parameters():
        count[parameter.requires_grad] += parameter.numel()
    second = train(model, poems(), steps, 1e-2, seed)
    for name, p in model.named_parameters():
        if not p.requires_grad:
            assert torch.equal(p, before[name.replace(".layer.", ".")]), name
    tokens = poems()[: model.size.context].long().unsqueeze(0).to(device)
    with torch.no_grad():
        apart = model(tokens)
        merge_lora(model)
        moved = (model(tokens) - apart).abs().max().item()
    share = count[True] / (count[True] + count[False])
    print(
        f"{device}: {first[0]:.4f} -> {first[-1]:.4f}, then with {share:.1%} of the "
        f"parameters on other text {second[0]:.4f} -> {second[-1]:.4f}; "
        f"merged: {moved:.1e} apart"
    )
    return first, second, moved


@click.command()
@click.option("--steps", default=60, show_default=True)
@click.option("--seed", default=0, show_default=True)
def main(steps: int, seed: int) -> None:
    cpu = finetuned("cpu", steps, seed)
    npu = finetuned("npu", steps, seed)
    apart = max(
        (a - b).abs().max().item() for a, b in zip(cpu[:2], npu[:2], strict=True)
    )
    print(f"losses differ by {apart:.1e} at most")


if __name__ == "__main__":
    main()
