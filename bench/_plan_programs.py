"""The programs of bench/plan.py: run with PROGRAM SECONDS, it prints the microseconds
of a step.

They are the least of several blocks, because others on this machine only add to some.
What a step of those in STATED takes a device follows from its spec by hand.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from _peers import NPU, Call
from torch import nn
from training import training_step

from npu_dispatch import npu
from npu_dispatch.plan.spec import Spec

BLOCK_S = 0.025
WARM_UPS = 10
PROGRAMS = (
    *("mlp", "gpt_tiny", "gpt_wide", "cnn", "lstm", "gru", "depthwise_cnn"),
    *("attention", "embedding_bag", "resnet18", "unet", "ppo", "server", "wide_mlp"),
)
# What `calibrate` times was not chosen by these.
HELD_OUT = frozenset({"attention", "unet", "server", "wide_mlp"})
COUNT = 8  # calls in a step of STATED
SIDE = 1024  # of a matrix
COPIED = 1 << 20  # elements of 4 bytes
SLEEP_NS = 500_000


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
    model = ActorCritic().to("npu")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    places, noise = torch.rand(8, 8), torch.empty(4, device="npu")

    def step() -> None:
        seen, actions, likely = [], [], []
        for place in places:
            x = place.to("npu")
            with torch.no_grad():
                logits, _ = model(x)
                chosen = (logits - noise.exponential_().log()).argmax(-1, True)
                likely.append(logits.log_softmax(-1)[chosen])
            seen.append(x)
            actions.append(int(chosen.item()))
        x = torch.stack(seen)
        taken = torch.tensor(actions, device="npu")
        rewards = torch.ones(8, device="npu")
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
    model = nn.Sequential(*layers, nn.Linear(256, 10)).to("npu").eval()
    request = torch.rand(1, 256)

    @torch.no_grad()
    def answer() -> None:
        model(request.to("npu")).argmax(-1).item()

    return answer


def products() -> Call:
    a, b, out = (torch.ones(SIDE, SIDE, device="npu") for _ in range(3))
    return lambda: torch.mm(a, b, out=out)


def products_us(spec: Spec) -> float:
    n = spec.numbers
    flops_per_us = n["tflops"]["fp32"] * n["efficiency"]["arithmetic"] * 1e6
    return n["latency_us"]["kernel"] + 2 * SIDE**3 / flops_per_us


def copies() -> Call:
    here = torch.ones(COPIED).pin_memory()
    there = torch.ones(COPIED, device="npu")
    return lambda: there.copy_(here, non_blocking=True)


def copies_us(spec: Spec) -> float:
    bytes_per_us = spec.numbers["link"]["gb_per_s"] * 1e3
    return spec.numbers["latency_us"]["copy"] + 4 * COPIED / bytes_per_us


def sleeps() -> Call:
    return lambda: npu._sleep(SLEEP_NS)


# name: a call, and its microseconds on a device
STATED: dict[str, tuple[Callable[[], Call], Callable[[Spec], float]]] = {
    "products": (products, products_us),
    "copies": (copies, copies_us),
    "sleeps": (sleeps, lambda _: SLEEP_NS / 1e3),
}


class Repeated(nn.Module):
    """So many calls of one function."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        self.call = call

    def forward(self) -> None:
        for _ in range(COUNT):
            self.call()


def program(name: str) -> Call:
    torch.manual_seed(0)
    if name in STATED:
        return torch.no_grad()(Repeated(STATED[name][0]()))
    if name in ("ppo", "server"):
        return {"ppo": ppo, "server": server}[name]()
    return training_step(NPU, name, "foreach" if name in ("mlp", "cnn") else "fused")


def timed(step: Call, count: int) -> float:
    begun = time.perf_counter()
    for _ in range(count):
        step()
    torch.npu.synchronize()
    return (time.perf_counter() - begun) / count


def main() -> None:
    step, seconds = program(sys.argv[1]), float(sys.argv[2])
    timed(step, WARM_UPS)
    count = max(round(BLOCK_S / timed(step, 3)), 1)
    found, end = [], time.perf_counter() + seconds
    while not found or time.perf_counter() < end:
        found.append(timed(step, count))
    print(min(found) * 1e6)


if __name__ == "__main__":
    main()
