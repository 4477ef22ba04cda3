"""Programs that bench/plan.py plans, by name."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from _peers import Call
from torch import nn

# Programs of bench/steps.py. model: kind of optimizer kernels
TRAINED = {
    "mlp": "foreach",
    "gpt_tiny": "fused",
    "gpt_wide": "fused",
    "cnn": "foreach",
    "lstm": "fused",
}

_NPU = "npu"


def _training(
    model: nn.Module, *batch: torch.Tensor, loss: Callable[..., torch.Tensor]
) -> Call:
    """Return a step of AdamW; the batch ends with what is wanted of the model."""
    model.to(_NPU)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    *inputs, wanted = (tensor.to(_NPU) for tensor in batch)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss(model(*inputs), wanted).backward()
        optimizer.step()

    return step


class Tagger(nn.Module):
    """A GRU layer of width 96 and a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(48, 96, batch_first=True)
        self.head = nn.Linear(96, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.gru(x)[0]).flatten(0, 1)


def gru() -> Call:
    """A tagger of 12 time steps, batch 16."""
    x, y = torch.rand(16, 12, 48), torch.randint(12, (16 * 12,))
    return _training(Tagger(), x, y, loss=F.cross_entropy)


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

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layers(x)
        return x + y if self.adds else y


def _classifier(width: int, *layers: nn.Module) -> nn.Module:
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)
    )


def depthwise_cnn() -> Call:
    """Four blocks of MobileNet on 32x32 images, batch 8."""
    blocks = (Inverted(32), Inverted(32), Inverted(32, 2), Inverted(32))
    model = _classifier(32, nn.Conv2d(3, 32, 3, padding=1), *blocks)
    x, y = torch.rand(8, 3, 32, 32), torch.randint(10, (8,))
    return _training(model, x, y, loss=F.cross_entropy)


class Attention(nn.Module):
    """Causal self-attention of 8 heads, twice."""

    def __init__(self, width: int = 256, heads: int = 8) -> None:
        super().__init__()
        self.heads = heads
        self.inner = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(2))
        self.outer = nn.ModuleList(nn.Linear(width, width) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for inner, outer in zip(self.inner, self.outer, strict=True):
            parts = inner(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(*parts, is_causal=True)
            x = x + outer(y.transpose(1, 2).flatten(2))
        return x


def attention() -> Call:
    """Two layers of attention over 256 tokens of width 256, batch 4."""
    x, y = torch.rand(2, 4, 256, 256)
    return _training(Attention(), x, y, loss=F.mse_loss)


def embedding_bag() -> Call:
    """A bag of 20 of 10,000 words for each of 64 texts, and three layers."""
    layers = (nn.EmbeddingBag(10_000, 64), nn.Linear(64, 64), nn.ReLU())
    model = nn.Sequential(*layers, nn.Linear(64, 5))
    x, y = torch.randint(10_000, (64, 20)), torch.randint(5, (64,))
    return _training(model, x, y, loss=F.cross_entropy)


class Basic(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        stride = 1 if inputs == outputs else 2
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride == 2:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                nn.BatchNorm2d(outputs),
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.layers(x) + self.shortcut(x))


def resnet18() -> Call:
    """ResNet-18 as it is used for photographs, with its 7x7 stem: 96x96, batch 4."""
    stem = (
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    )
    widths = ((64, 64), (64, 64), (64, 128), (128, 128))
    more = ((128, 256), (256, 256), (256, 512), (512, 512))
    model = _classifier(512, *stem, *(Basic(*pair) for pair in (*widths, *more)))
    x, y = torch.rand(4, 3, 96, 96), torch.randint(10, (4,))
    return _training(model, x, y, loss=F.cross_entropy)


def _two_convolutions(inputs: int, outputs: int) -> nn.Module:
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
        self.first = _two_convolutions(3, width)
        self.second = _two_convolutions(width, 2 * width)
        self.lowest = _two_convolutions(2 * width, 4 * width)
        self.up_second = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.join_second = _two_convolutions(4 * width, 2 * width)
        self.up_first = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.join_first = _two_convolutions(2 * width, width)
        self.head = nn.Conv2d(width, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.first(x)
        second = self.second(F.max_pool2d(first, 2))
        lowest = self.lowest(F.max_pool2d(second, 2))
        y = self.join_second(torch.cat((second, self.up_second(lowest)), 1))
        y = self.join_first(torch.cat((first, self.up_first(y)), 1))
        return self.head(y)


def unet() -> Call:
    """64x64 images, batch 2."""
    x, y = torch.rand(2, 2, 3, 64, 64)
    return _training(UNet(), x, y, loss=F.mse_loss)


class ActorCritic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64))
        self.actor, self.critic = nn.Linear(64, 4), nn.Linear(64, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.tanh(self.body(x))
        return self.actor(y), self.critic(y).squeeze(-1)


def ppo() -> Call:
    """Eight actions, each read with item(), and one update that clips."""
    model = ActorCritic().to(_NPU)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    places, noise = torch.rand(8, 8), torch.empty(4, device=_NPU)

    def step() -> None:
        seen, actions, likely = [], [], []
        for place in places:
            x = place.to(_NPU)
            with torch.no_grad():
                logits, _ = model(x)
                chosen = (logits - noise.exponential_().log()).argmax(-1, True)
                likely.append(logits.log_softmax(-1)[chosen])
            seen.append(x)
            actions.append(int(chosen.item()))
        x = torch.stack(seen)
        taken = torch.tensor(actions, device=_NPU)
        rewards = torch.ones(8, device=_NPU)
        logits, values = model(x)
        log = logits.log_softmax(-1).gather(-1, taken[:, None]).squeeze(-1)
        ratio = (log - torch.cat(likely)).exp()
        gain = rewards - values.detach()
        clipped = ratio.clamp(0.8, 1.2)
        loss = -torch.min(ratio * gain, clipped * gain).mean()
        loss = loss + F.mse_loss(values, rewards)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        loss.item()

    return step


def server() -> Call:
    """Requests of one example each, through four layers of width 256."""
    layers: list[nn.Module] = []
    for _ in range(4):
        layers += [nn.Linear(256, 256), nn.GELU()]
    model = nn.Sequential(*layers, nn.Linear(256, 10)).to(_NPU).eval()
    request = torch.rand(1, 256)

    @torch.no_grad()
    def answer() -> None:
        model(request.to(_NPU)).argmax(-1).item()

    return answer


def wide_mlp() -> Call:
    """Three layers of width 1024, batch 128."""
    layers = (nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU())
    x, y = torch.rand(2, 128, 1024)
    model = nn.Sequential(*layers, nn.Linear(1024, 1024))
    return _training(model, x, y, loss=F.mse_loss)


OTHERS: dict[str, Callable[[], Call]] = {
    "gru": gru,
    "depthwise_cnn": depthwise_cnn,
    "attention": attention,
    "embedding_bag": embedding_bag,
    "resnet18": resnet18,
    "unet": unet,
    "ppo": ppo,
    "server": server,
    "wide_mlp": wide_mlp,
}
# What `calibrate` times was not chosen by these.
HELD_OUT = frozenset({"attention", "unet", "server", "wide_mlp"})
