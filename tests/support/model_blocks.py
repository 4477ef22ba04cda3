"""Blocks that models are made of, each with its input on cpu."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Made = tuple[nn.Module, Tensor]


class Function(nn.Module):
    """A function of modules, which are its attributes."""

    def __init__(self, function: Callable[..., Tensor], **modules: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def mlp() -> Made:
    layers = [nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4)]
    return nn.Sequential(*layers), torch.randn(8, 16)


def convolution() -> Made:
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()]
    return nn.Sequential(*layers, nn.MaxPool2d(2)), torch.randn(2, 3, 8, 8)


def residual() -> Made:
    def run(m: Function, x: Tensor) -> Tensor:
        y = F.relu(m.norm(m.first(x)))
        return F.relu(m.second(y) + x)

    convs = {n: nn.Conv2d(8, 8, 3, padding=1, bias=False) for n in ("first", "second")}
    return Function(run, norm=nn.BatchNorm2d(8), **convs), torch.randn(2, 8, 6, 6)


def separable() -> Made:
    layers = [nn.Conv2d(8, 8, 3, groups=8), nn.GroupNorm(2, 8), nn.SiLU()]
    return nn.Sequential(*layers, nn.Conv2d(8, 4, 1)), torch.randn(2, 8, 7, 7)


def squeeze() -> Made:
    def run(m: Function, x: Tensor) -> Tensor:
        gate = m.up(F.relu(m.down(x.mean((2, 3))))).sigmoid()
        return x * gate[:, :, None, None]

    return Function(run, down=nn.Linear(8, 2), up=nn.Linear(2, 8)), torch.randn(
        2, 8, 5, 5
    )


def upsampling() -> Made:
    def run(m: Function, x: Tensor) -> Tensor:
        small = F.avg_pool2d(x, 2)
        large = F.interpolate(m.low(small), scale_factor=2, mode="bilinear")
        return torch.cat([x, large], 1)

    return Function(run, low=nn.Conv2d(4, 4, 3, padding=1)), torch.randn(2, 4, 8, 8)


def attention() -> Made:
    def run(m: Function, x: Tensor) -> Tensor:
        q, k, v = m.qkv(x).view(2, 6, 3, 4, 4).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return m.out(y.transpose(1, 2).reshape(2, 6, 16))

    return Function(run, qkv=nn.Linear(16, 48), out=nn.Linear(16, 16)), torch.randn(
        2, 6, 16
    )


def rotary() -> Made:
    def run(m: Function, x: Tensor) -> Tensor:
        angle = torch.arange(6, device=x.device)[:, None] / 10.0 ** torch.arange(
            4, device=x.device
        )
        a, b = m.project(x).chunk(2, -1)
        cos, sin = angle.cos(), angle.sin()
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)

    return Function(run, project=nn.Linear(8, 8)), torch.randn(2, 6, 8)


def encoder() -> Made:
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
    return layer, torch.randn(2, 5, 16)


def gated() -> Made:
    def run(m: Function, x: Tensor) -> Tensor:
        y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return x + m.down(F.silu(m.gate(y)) * m.up(y))

    modules = {"gate": nn.Linear(16, 24), "up": nn.Linear(16, 24)}
    return Function(run, down=nn.Linear(24, 16), **modules), torch.randn(3, 16)


def recurrent() -> Made:
    def run(m: Function, x: Tensor) -> Tensor:
        state = x.new_zeros(2, 8)
        for t in range(4):
            state = m.cell(x[:, t], state)
        return state

    return Function(run, cell=nn.GRUCell(6, 8)), torch.randn(2, 4, 6)


def lstm() -> Made:
    def run(m: Function, x: Tensor) -> Tensor:
        return m.lstm(x)[0].tanh()

    return Function(run, lstm=nn.LSTM(6, 8, batch_first=True)), torch.randn(2, 4, 6)


def language() -> Made:
    def run(m: Function, x: Tensor) -> Tensor:
        tokens = (x.abs() * 10).long().clamp(max=19)
        y = m.mix(m.table(tokens))
        logits = y @ m.table.weight.t()
        return F.cross_entropy(
            logits.flatten(0, 1), tokens.flatten(), label_smoothing=0.1
        )

    return Function(run, table=nn.Embedding(20, 8), mix=nn.Linear(8, 8)), torch.randn(
        2, 7
    )


def experts() -> Made:
    def run(m: Function, x: Tensor) -> Tensor:
        weights, chosen = m.router(x).softmax(-1).topk(2)
        one_hot = F.one_hot(chosen, 4).to(x.dtype) * weights[..., None]
        outs = torch.stack([m.first(x), m.second(x), x, -x], 1)
        return (one_hot.sum(1)[..., None] * outs).sum(1)

    modules = {"first": nn.Linear(8, 8), "second": nn.Linear(8, 8)}
    return Function(run, router=nn.Linear(8, 4), **modules), torch.randn(5, 8)


def graph_layer() -> Made:
    def run(m: Function, x: Tensor) -> Tensor:
        there = torch.arange(6, device=x.device)
        back = (there * 5 + 1) % 6
        gathered = torch.zeros_like(x).index_add(0, back, x[there])
        return F.relu(m.self_(x) + m.other(gathered))

    modules = {"self_": nn.Linear(8, 8), "other": nn.Linear(8, 8)}
    return Function(run, **modules), torch.randn(6, 8)


BLOCKS: tuple[Callable[[], Made], ...] = (
    mlp,
    convolution,
    residual,
    separable,
    squeeze,
    upsampling,
    attention,
    rotary,
    encoder,
    gated,
    recurrent,
    lstm,
    language,
    experts,
    graph_layer,
)
