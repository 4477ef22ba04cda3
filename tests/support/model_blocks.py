"""Blocks that models are made of: each function makes one, and its input, on cpu."""

import inspect
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


def convnext() -> Made:
    def run(m: Function, x: Tensor) -> Tensor:
        y = m.norm(m.deep(x).permute(0, 2, 3, 1))
        return x + m.down(F.gelu(m.up(y))).permute(0, 3, 1, 2)

    modules = {
        "deep": nn.Conv2d(8, 8, 5, padding=2, groups=8),
        "norm": nn.LayerNorm(8),
        "up": nn.Linear(8, 16),
        "down": nn.Linear(16, 8),
    }
    return Function(run, **modules), torch.randn(2, 8, 6, 6)


def inverted_residual() -> Made:
    layers = [
        *(nn.Conv2d(6, 12, 1, bias=False), nn.BatchNorm2d(12), nn.Hardswish()),
        nn.Conv2d(12, 12, 3, padding=1, groups=12, bias=False),
        *(nn.BatchNorm2d(12), nn.ReLU6(), nn.Conv2d(12, 6, 1)),
    ]
    return nn.Sequential(*layers), torch.randn(2, 6, 7, 7)


def dense() -> Made:
    def run(m: Function, x: Tensor) -> Tensor:
        x = torch.cat([x, F.leaky_relu(m.first(x))], 1)
        return torch.cat([x, F.elu(m.second(x))], 1)

    modules = {
        "first": nn.Conv2d(4, 3, 3, padding=1),
        "second": nn.Conv2d(7, 3, 3, padding=1),
    }
    return Function(run, **modules), torch.randn(2, 4, 5, 5)


def u_shaped() -> Made:
    def run(m: Function, x: Tensor) -> Tensor:
        inner = m.up(F.relu(m.inner(F.avg_pool2d(x, 2))))
        return m.out(torch.cat([x, inner], 1))

    modules = {
        "inner": nn.Conv2d(3, 8, 3, padding=1),
        "up": nn.ConvTranspose2d(8, 4, 2, stride=2),
        "out": nn.Conv2d(7, 2, 1),
    }
    return Function(run, **modules), torch.randn(2, 3, 8, 8)


def dilated() -> Made:
    def run(m: Function, x: Tensor) -> Tensor:
        rates = [F.conv1d(x, m.shared.weight, padding=d, dilation=d) for d in (1, 2, 4)]
        return torch.stack(rates).amax(0) + x

    return Function(run, shared=nn.Conv1d(4, 4, 3, bias=False)), torch.randn(2, 4, 16)


def patches() -> Made:
    def run(m: Function, x: Tensor) -> Tensor:
        tokens = m.embed(x).flatten(2).transpose(1, 2)
        first = m.first.weight.expand(len(x), 1, 8)
        return m.block(torch.cat([first, tokens], 1))[:, 0]

    block = nn.TransformerEncoderLayer(8, 2, 16, 0.0, "gelu", batch_first=True)
    modules = {"embed": nn.Conv2d(3, 8, 4, 4), "first": nn.Linear(8, 1), "block": block}
    return Function(run, **modules), torch.randn(2, 3, 8, 8)


def decoder() -> Made:
    def run(m: Function, x: Tensor) -> Tensor:
        mask = torch.ones(5, 5, dtype=torch.bool, device=x.device).triu(1)
        return m.layer(x[:, :5], x[:, 5:], tgt_mask=mask)

    layer = nn.TransformerDecoderLayer(8, 2, 16, 0.0, batch_first=True)
    return Function(run, layer=layer), torch.randn(2, 9, 8)


def grouped_queries() -> Made:
    def run(m: Function, x: Tensor) -> Tensor:
        q = m.q(x).unflatten(-1, (4, 4)).transpose(1, 2)
        k, v = m.kv(x).unflatten(-1, (2, 2, 4)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return m.out(y.transpose(1, 2).flatten(2))

    modules = {"q": nn.Linear(8, 16), "kv": nn.Linear(8, 16), "out": nn.Linear(16, 8)}
    return Function(run, **modules), torch.randn(2, 6, 8)


def swish_gated() -> Made:
    def run(m: Function, x: Tensor) -> Tensor:
        y = m.norm(x)
        return x + m.down(F.silu(m.gate(y)) * m.up(y))

    modules = {
        "norm": nn.RMSNorm(8),
        "gate": nn.Linear(8, 12, bias=False),
        "up": nn.Linear(8, 12, bias=False),
        "down": nn.Linear(12, 8, bias=False),
    }
    return Function(run, **modules), torch.randn(3, 5, 8)


def both_ways() -> Made:
    def run(m: Function, x: Tensor) -> Tensor:
        out, last = m.gru(x)
        return m.head(out) + last.sum(0)[:, None]

    modules = {
        "gru": nn.GRU(4, 6, bidirectional=True, batch_first=True),
        "head": nn.Linear(12, 6),
    }
    return Function(run, **modules), torch.randn(2, 5, 4)


def cells() -> Made:
    def run(m: Function, x: Tensor) -> Tensor:
        h = torch.zeros(len(x), 6, device=x.device)
        for step in x.unbind(1):
            h = m.cell(step, h)
        return h

    return Function(run, cell=nn.GRUCell(4, 6)), torch.randn(3, 4, 4)


def frequencies() -> Made:
    def run(m: Function, x: Tensor) -> Tensor:
        spectrum = torch.fft.rfft(m.into(x), dim=1)
        filtered = spectrum * m.filter.weight[0, : spectrum.shape[1], None]
        return torch.fft.irfft(filtered, n=x.shape[1], dim=1) + x

    return Function(run, into=nn.Linear(4, 4), filter=nn.Linear(8, 1)), torch.randn(
        2, 8, 4
    )


def bilinear() -> Made:
    def run(m: Function, x: Tensor) -> Tensor:
        left, right = m.left(x), m.right(x)
        scores = torch.einsum("bid,bjd->bij", left, right)
        return m.pair(left, torch.einsum("bij,bjd->bid", scores.softmax(-1), right))

    modules = {
        "left": nn.Linear(6, 5),
        "right": nn.Linear(6, 5),
        "pair": nn.Bilinear(5, 5, 3),
    }
    return Function(run, **modules), torch.randn(2, 4, 6)


def adapted() -> Made:
    def run(m: Function, x: Tensor) -> Tensor:
        y = m.base(x) + 2.0 * m.up(m.down(x))
        return m.norm(y.transpose(1, 2)).transpose(1, 2)

    modules = {
        "base": nn.Linear(8, 8).requires_grad_(False),
        "down": nn.Linear(8, 2, bias=False),
        "up": nn.Linear(2, 8, bias=False),
        "norm": nn.InstanceNorm1d(8, affine=True),
    }
    return Function(run, **modules), torch.randn(2, 6, 8)


def bags() -> Made:
    def run(m: Function, x: Tensor) -> Tensor:
        tokens = (x.abs() * 10).long().clamp(max=19)
        bag = m.table(tokens)
        logits = m.head(torch.cat([bag, x.mean(1, keepdim=True)], 1))
        return F.cross_entropy(logits, tokens[:, 0] % 3)

    modules = {"table": nn.EmbeddingBag(20, 8), "head": nn.Linear(9, 3)}
    return Function(run, **modules), torch.randn(4, 5)


BLOCKS = [block for block in list(vars().values()) if inspect.isfunction(block)]
