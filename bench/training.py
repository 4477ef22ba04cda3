"""The training steps that benchmarks take, on any peer.

`kind` says which kernels the optimizer has: "fused" and "foreach" ask for the
same ones on every device, "defaults" leaves it to torch, which takes a loop over
the parameters on cpu and foreach on npu.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import models
import torch
import torch.nn.functional as F
from _peers import Call, Peer
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
import gpt

import npu_dispatch

KINDS: dict[str, dict[str, bool]] = {
    "fused": {"fused": True},
    "foreach": {"foreach": True},
    "defaults": {},
}


def step_of(
    peer: Peer,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_fn: Callable[..., Tensor] | None,
    batch: tuple[Tensor, ...],
    **options: Any,
) -> Call:
    """Return a step with `batch`: a loop's body, or compile_step() of all of it."""
    if options.pop("whole", False):
        whole = npu_dispatch.compile_step(model, optimizer, loss_fn)
        return lambda: whole(*batch)

    def evaluate() -> Tensor:
        if loss_fn is None:
            return model(*batch)
        return loss_fn(model(*batch[:-1]), batch[-1])

    loss = peer.compiled(evaluate, **options)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        optimizer.step()

    return step


class Loss(nn.Module):
    """A model whose result is its loss."""

    def __init__(self, model: gpt.GPT) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Tensor) -> Tensor:
        return self.model.loss(batch)


def of_gpt(size: str) -> nn.Module:
    return Loss(gpt.GPT(gpt.SIZES[size]))


def text(size: str) -> tuple[Tensor, ...]:
    sizes = gpt.SIZES[size]
    return (torch.randint(256, (sizes.batch, sizes.context + 1)),)


def labelled(*shape: int, classes: int = 10, each: int = 1) -> tuple[Tensor, ...]:
    """Return a batch of inputs, and `each` classes for each of them."""
    return torch.rand(*shape), torch.randint(classes, (shape[0] * each,))


ADAMW = partial(torch.optim.AdamW, lr=1e-3)
SGD = partial(torch.optim.SGD, lr=0.01)


@dataclass(frozen=True, slots=True)
class Training:
    """What is trained, with which batch, loss and optimizer."""

    model: Callable[[], nn.Module]
    batch: Callable[[], tuple[Tensor, ...]]
    loss: Callable[..., Tensor] | None = F.cross_entropy
    optimizer: Callable[..., torch.optim.Optimizer] = ADAMW
    has_count: bool = True  # of steps


def pair(*shape: int) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (torch.rand(shape), torch.rand(shape))


MODELS = {
    # Three layers of width 64, batch 32.
    "mlp": Training(
        partial(models.perceptron, *[64] * 4), pair(32, 64), F.mse_loss, SGD, False
    ),
    # GPTs of examples/gpt.py.
    "gpt_tiny": Training(partial(of_gpt, "tiny"), partial(text, "tiny"), None),
    "gpt_wide": Training(partial(of_gpt, "wide"), partial(text, "wide"), None),
    # Batch 8, SGD with momentum.
    "cnn": Training(
        models.small_images,
        partial(labelled, 8, 3, 32, 32),
        optimizer=partial(SGD, momentum=0.9),
        has_count=False,
    ),
    # Two layers of width 64 over 16 time steps, batch 8.
    "lstm": Training(
        lambda: models.Tagger(nn.LSTM(32, 64, 2, batch_first=True), 10),
        partial(labelled, 8, 16, 32, each=16),
        optimizer=partial(torch.optim.Adam, lr=1e-3),
    ),
    # As users write them.
    "transformer": Training(
        lambda: models.OfSequences(models.transformer(dropout=0.0)),
        partial(labelled, 16, 16, 128),
    ),
    "transformer_dropout": Training(
        lambda: models.OfSequences(models.transformer()),
        partial(labelled, 16, 16, 128),
    ),
    # The update of a DQN's network: 8 observations, 4 actions, batch 32.
    "dqn": Training(
        partial(models.perceptron, 8, 64, 64, 4),
        lambda: (torch.rand(32, 8), torch.rand(32, 4)),
        F.smooth_l1_loss,
    ),
    "lstm_dropout": Training(
        lambda: models.OfSequences(nn.LSTM(128, 128, 2, batch_first=True, dropout=0.1)),
        partial(labelled, 16, 16, 128),
    ),
    # 12 time steps, batch 16.
    "gru": Training(
        lambda: models.Tagger(nn.GRU(48, 96, batch_first=True), 12),
        partial(labelled, 16, 12, 48, classes=12, each=12),
    ),
    "depthwise_cnn": Training(models.mobilenet, partial(labelled, 8, 3, 32, 32)),
    # Over 256 tokens of width 256, batch 4.
    "attention": Training(models.Attention, pair(4, 256, 256), F.mse_loss),
    # A bag of 20 of 10,000 words for each of 64 texts, and three layers.
    "embedding_bag": Training(
        lambda: nn.Sequential(
            nn.EmbeddingBag(10_000, 64), *models.perceptron(64, 64, 5)
        ),
        lambda: (torch.randint(10_000, (64, 20)), torch.randint(5, (64,))),
    ),
    "resnet18": Training(models.photographs, partial(labelled, 4, 3, 96, 96)),
    "unet": Training(models.UNet, pair(2, 3, 64, 64), F.mse_loss),
    # Three layers, batch 128.
    "wide_mlp": Training(
        partial(models.perceptron, *[1024] * 4), pair(128, 1024), F.mse_loss
    ),
}


def training_step(
    peer: Peer, name: str, kind: str, *, in_a_graph: bool = False, **how: Any
) -> Call:
    """Return one step of a model: zero_grad, forward, backward, the optimizer.

    `in_a_graph`: the step can be captured, so its step count is on the device,
    where fused kernels have it anyway. `how`: whole=True for compile_step(), or
    options of torch.compile.
    """
    training = MODELS[name]
    kernels = dict(KINDS[kind])
    if in_a_graph and training.has_count and kind != "fused":
        kernels["capturable"] = True
    torch.manual_seed(0)
    model = training.model().to(peer.device)
    optimizer = training.optimizer(model.parameters(), **kernels)
    batch = tuple(tensor.to(peer.device) for tensor in training.batch())
    return step_of(peer, model, optimizer, training.loss, batch, **how)


def deep_forward(peer: Peer, **options: Any) -> Call:
    """Return 16 linear layers of width 16, ReLU after each; batch 16, no gradients.

    `options` are torch.compile's, for the peers that compile.
    """
    torch.manual_seed(0)
    layers = models.perceptron(*[16] * 17)
    model = nn.Sequential(*layers, nn.ReLU()).to(peer.device).eval()
    x = torch.rand(16, 16).to(peer.device)
    return torch.no_grad()(peer.compiled(lambda: model(x), **options))


def captured(
    call: Call, stream: torch.npu.Stream | None = None, warm_ups: int = 3
) -> Call:
    """Return the replay of an npu call, captured once it is warm."""
    with torch.npu.stream(stream):
        for _ in range(warm_ups):
            call()
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph, stream=stream):
            call()

    def replay() -> None:
        graph.replay()

    replay.reads = call  # type: ignore[attr-defined]  # its tensors, which have to stay
    return replay
