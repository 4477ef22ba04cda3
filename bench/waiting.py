"""Programs whose host waits for the device again and again, on any peer.

Each returns what one call does: a token, or a training step.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from _peers import Call, Peer
from models import perceptron
from torch import Tensor, nn

VOCABULARY = 256


def nucleus(logits: Tensor, part: float = 0.9) -> Tensor:
    """Draw one token of each row among the likeliest that are `part` of all."""
    odds, tokens = F.softmax(logits, -1).sort(-1, descending=True)
    odds = odds.masked_fill(odds.cumsum(-1) - odds > part, 0.0)
    return tokens.gather(-1, odds.multinomial(1))


def decode(peer: Peer) -> Call:
    """A token of four sequences: sort, cumsum, multinomial, and one bool()."""
    torch.manual_seed(0)
    embed = nn.Embedding(VOCABULARY, 64).to(peer.device)
    head = perceptron(64, 128, VOCABULARY).to(peer.device)
    token = torch.zeros(4, 1, dtype=torch.long, device=peer.device)

    @torch.no_grad()
    def call() -> bool:
        nonlocal token
        token = nucleus(head(embed(token[:, 0])))
        return bool((token == VOCABULARY).all())

    return call


class Attention(nn.Module):
    """Causal attention of one new token over those kept before it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (
            nn.Linear(width, width, bias=False) for _ in range(4)
        )

    def forward(self, x: Tensor, kept: list[Tensor], mask: Tensor) -> Tensor:
        batch, time, width = x.shape

        def split(y: Tensor) -> Tensor:
            return y.view(batch, time, self.heads, -1).transpose(1, 2)

        new = [split(self.k(x)), split(self.v(x))]
        kept[:] = [torch.cat(pair, 2) for pair in zip(kept, new, strict=True)]
        y = F.scaled_dot_product_attention(split(self.q(x)), *kept, attn_mask=mask)
        return self.out(y.transpose(1, 2).reshape(batch, time, width))


class Decoder(nn.Module):
    """Three layers as Llama has them: RMSNorm, attention, gated linear units."""

    def __init__(self, width: int = 64, heads: int = 4, depth: int = 3) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.attention = nn.ModuleList(Attention(width, heads) for _ in range(depth))
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2 * depth))
        self.up = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(depth))
        self.down = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(depth))
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, token: Tensor, kept: list[list[Tensor]], mask: Tensor) -> Tensor:
        x = self.embed(token)
        for i, attention in enumerate(self.attention):
            x = x + attention(self.norms[2 * i](x), kept[i], mask)
            gate, value = self.up[i](self.norms[2 * i + 1](x)).chunk(2, -1)
            x = x + self.down[i](F.silu(gate) * value)
        return self.head(x[:, -1])


def generate(peer: Peer) -> Call:
    """A token of a loop as transformers' generate() has it: batch 2, sampling, a
    cache and a mask that grow to 64 tokens, and a look at what has ended."""
    torch.manual_seed(0)
    model = Decoder().to(peer.device).eval()
    batch, most = 2, 64
    token = torch.zeros(batch, 1, dtype=torch.long, device=peer.device)
    mask = torch.ones(batch, 0, dtype=torch.bool, device=peer.device)
    empty = torch.zeros(batch, 4, 0, 16, device=peer.device)
    kept = [[empty, empty] for _ in model.attention]
    ended = torch.zeros(batch, dtype=torch.bool, device=peer.device)

    @torch.no_grad()
    def call() -> bool:
        nonlocal token, mask
        if mask.size(1) == most:
            mask = mask[:, :0]
            kept[:] = [[empty, empty] for _ in kept]
        mask = torch.cat([mask, mask.new_ones(batch, 1)], 1)
        places = mask.long().cumsum(-1)[:, -1:]
        logits = model(token, kept, mask[:, None, None, :]).float() / 0.8
        worst = logits.topk(50).values[:, -1:]
        logits = logits.masked_fill(logits < worst, float("-inf"))
        token = F.softmax(logits, -1).multinomial(1)
        token = token * (~ended)[:, None] + ended[:, None] * places
        return bool((ended | (token[:, 0] == VOCABULARY)).all())

    return call


def sac(peer: Peer) -> Call:
    """A gradient step of soft actor-critic: batch 256, five networks of width 256,
    three optimizers, and what a logger reads with item()."""
    torch.manual_seed(0)
    states, actions, batch = 3, 1, 256
    actor = perceptron(states, 256, 256, 2 * actions).to(peer.device)
    critics = [
        perceptron(states + actions, 256, 256, 1).to(peer.device) for _ in range(4)
    ]
    values, targets = critics[:2], critics[2:]
    entropy = torch.zeros(1, device=peer.device, requires_grad=True)
    of_actor = torch.optim.Adam(actor.parameters(), lr=3e-4)
    of_values = torch.optim.Adam([p for v in values for p in v.parameters()], lr=3e-4)
    of_entropy = torch.optim.Adam([entropy], lr=3e-4)
    seen, after = (torch.rand(batch, states).to(peer.device) for _ in range(2))
    did = torch.rand(batch, actions).to(peer.device)
    reward = torch.rand(batch, 1).to(peer.device)

    def act(state: Tensor) -> tuple[Tensor, Tensor]:
        mean, spread = actor(state).chunk(2, -1)
        chosen = torch.distributions.Normal(mean, spread.clamp(-5, 2).exp())
        action = chosen.rsample()
        odds = chosen.log_prob(action) - (1 - action.tanh() ** 2 + 1e-6).log()
        return action.tanh(), odds.sum(-1, keepdim=True)

    def least(networks: list[nn.Sequential], state: Tensor, action: Tensor) -> Tensor:
        found = [network(torch.cat([state, action], -1)) for network in networks]
        return torch.minimum(*found)

    def call() -> tuple[float, ...]:
        action, odds = act(seen)
        tuned = -(entropy * (odds + actions).detach()).mean()
        of_entropy.zero_grad()
        tuned.backward()
        of_entropy.step()
        weight = entropy.detach().exp()
        with torch.no_grad():
            next_action, next_odds = act(after)
            worth = least(targets, after, next_action) - weight * next_odds
            wanted = reward + 0.99 * worth
        pairs = torch.cat([seen, did], -1)
        missed = sum(F.mse_loss(value(pairs), wanted) for value in values)
        of_values.zero_grad()
        missed.backward()
        of_values.step()
        loss = (weight * odds - least(values, seen, action)).mean()
        of_actor.zero_grad()
        loss.backward()
        of_actor.step()
        with torch.no_grad():
            for value, target in zip(values, targets, strict=True):
                for new, old in zip(
                    value.parameters(), target.parameters(), strict=True
                ):
                    old.mul_(0.995).add_(new, alpha=0.005)
        return missed.item(), loss.item(), tuned.item(), weight.item()

    return call


def vae(peer: Peer) -> Call:
    """A step of a variational autoencoder on 128 images of 28x28, and its loss."""
    torch.manual_seed(0)
    encoder, decoder = perceptron(784, 400, 40), perceptron(20, 400, 784)
    model = nn.ModuleList([encoder, decoder]).to(peer.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    images = torch.rand(128, 784).to(peer.device)

    def call() -> float:
        optimizer.zero_grad()
        mean, spread = encoder(images).chunk(2, -1)
        code = mean + torch.randn_like(spread) * (0.5 * spread).exp()
        made = decoder(code).sigmoid()
        away = -0.5 * (1 + spread - mean.square() - spread.exp()).sum()
        loss = F.binary_cross_entropy(made, images, reduction="sum") + away
        loss.backward()
        optimizer.step()
        return loss.item()

    return call


PROGRAMS = {f.__name__: f for f in (decode, generate, sac, vae)}
