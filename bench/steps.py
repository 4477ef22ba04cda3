"""The training steps that benchmarks take, on any peer.

`kind` says which kernels the optimizer has: "fused" and "foreach" ask for the
same ones on every device, "defaults" leaves it to torch, which takes a loop over
the parameters on cpu and foreach on npu.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from _peers import Call, Peer
from models import Tagger, resnet18
from torch import nn

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
    loss_fn: Callable[..., torch.Tensor] | None,
    batch: tuple[torch.Tensor, ...],
    **options: Any,
) -> Call:
    """Return a step with `batch`: a loop's body, or compile_step() of all of it."""
    if options.pop("whole", False):
        whole = npu_dispatch.compile_step(
            model, optimizer, loss_fn, backend=peer.backend or "eager"
        )
        return lambda: whole(*batch)

    def evaluate() -> torch.Tensor:
        if loss_fn is None:
            return model(*batch)
        return loss_fn(model(*batch[:-1]), batch[-1])

    loss = peer.compiled(evaluate, **options)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        optimizer.step()

    return step


def mlp(peer: Peer, how: dict[str, Any], **kernels: Any) -> Call:
    """Three layers of width 64, batch 32, SGD."""
    torch.manual_seed(0)
    layers = [nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(64, 64)).to(peer.device)
    kernels.pop("capturable", None)  # SGD counts no steps
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, **kernels)
    batch = tuple(torch.rand(32, 64).to(peer.device) for _ in range(2))
    return step_of(peer, model, optimizer, F.mse_loss, batch, **how)


class Loss(nn.Module):
    """A model whose result is its loss."""

    def __init__(self, model: gpt.GPT) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.model.loss(batch)


def gpt_of(size: str) -> Callable[..., Call]:
    def make(peer: Peer, how: dict[str, Any], **kernels: Any) -> Call:
        """A GPT of examples/gpt.py, AdamW."""
        torch.manual_seed(0)
        model = gpt.GPT(gpt.SIZES[size]).to(peer.device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **kernels)
        shape = (model.size.batch, model.size.context + 1)
        batch = torch.randint(256, shape).to(peer.device)
        return step_of(peer, Loss(model), optimizer, None, (batch,), **how)

    return make


def cnn(peer: Peer, how: dict[str, Any], **kernels: Any) -> Call:
    """ResNet-18 on 32x32 images, batch 8, SGD with momentum."""
    torch.manual_seed(0)
    model = resnet18().to(peer.device)
    kernels.pop("capturable", None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, **kernels)
    x = torch.rand(8, 3, 32, 32).to(peer.device)
    y = torch.randint(10, (8,)).to(peer.device)
    return step_of(peer, model, optimizer, F.cross_entropy, (x, y), **how)


def lstm(peer: Peer, how: dict[str, Any], **kernels: Any) -> Call:
    """Two LSTM layers of width 64 over 16 time steps, batch 8, Adam."""
    torch.manual_seed(0)
    model = Tagger().to(peer.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, **kernels)
    x = torch.rand(8, 16, 32).to(peer.device)
    y = torch.randint(10, (8 * 16,)).to(peer.device)
    return step_of(peer, model, optimizer, tag_loss, (x, y), **how)


def tag_loss(tags: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(tags.flatten(0, 1), wanted)


MODELS: dict[str, Callable[..., Call]] = {
    "mlp": mlp,
    "gpt_tiny": gpt_of("tiny"),
    "gpt_wide": gpt_of("wide"),
    "cnn": cnn,
    "lstm": lstm,
}


def training_step(
    peer: Peer, model: str, kind: str, *, in_a_graph: bool = False, **how: Any
) -> Call:
    """Return one step of a model: zero_grad, forward, backward, the optimizer.

    `in_a_graph`: the step can be captured, so its step count is on the device,
    where fused kernels have it anyway. `how`: whole=True for compile_step(), or
    options of torch.compile.
    """
    kernels = dict(KINDS[kind])
    if in_a_graph and kind != "fused":
        kernels["capturable"] = True
    return MODELS[model](peer, how, **kernels)


def deep_forward(peer: Peer, **options: Any) -> Call:
    """Return 16 linear layers of width 16, with ReLU between; batch 16, no gradients.

    `options` are torch.compile's, for the peers that compile.
    """
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(16):
        layers += [nn.Linear(16, 16), nn.ReLU()]
    model = nn.Sequential(*layers).to(peer.device).eval()
    x = torch.rand(16, 16).to(peer.device)
    return torch.no_grad()(peer.compiled(lambda: model(x), **options))


def captured(call: Call) -> Call:
    """Return the replay of an npu call, captured once it is warm."""
    for _ in range(3):
        call()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        call()

    def replay() -> None:
        graph.replay()

    replay.reads = call  # its tensors, which have to stay
    return replay
