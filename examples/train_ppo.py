"""Learn to balance a pole by PPO: the whole update is one graph, and one launch.

    npu-dispatch run examples/train_ppo.py

The environment is on the host, where its physics takes microseconds. What costs
is the update: sixteen forward and backward passes and optimizer steps on small
tensors, some thousand launches. Prints both devices' returns and times.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import click
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

ENVIRONMENTS, STEPS = 16, 128
EPOCHS, PARTS = 4, 4
GAMMA, LAMBDA, CLIP = 0.99, 0.95, 0.2


class CartPoles:
    """Carts with a pole, side by side: pushed left or right until it falls."""

    def __init__(self, n: int, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.state = self.random.uniform(-0.05, 0.05, (n, 4))
        self.age = np.zeros(n, dtype=int)

    def step(self, push_right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the observations after a 50th of a second, and who is done."""
        x, speed, angle, spin = self.state.T
        force = np.where(push_right, 10.0, -10.0)
        cos, sin = np.cos(angle), np.sin(angle)
        pull = (force + 0.05 * spin**2 * sin) / 1.1
        turn = (9.8 * sin - cos * pull) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        push = pull - 0.05 * turn * cos / 1.1
        self.state = self.state + 0.02 * np.stack([speed, push, spin, turn], 1)
        self.age += 1
        x, angle = self.state[:, 0], self.state[:, 2]
        done = (abs(x) > 2.4) | (abs(angle) > 0.2095) | (self.age >= 500)
        fresh = self.random.uniform(-0.05, 0.05, self.state.shape)
        self.state = np.where(done[:, None], fresh, self.state)
        self.age[done] = 0
        return self.state.astype(np.float32), done


class Agent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64))
        self.actor, self.critic = nn.Linear(64, 2), nn.Linear(64, 1)

    def forward(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.tanh(self.body(seen))
        return F.log_softmax(self.actor(x), -1), self.critic(x).squeeze(-1)


@dataclass
class Batch:
    """What one update learns from; the graph reads it where it is."""

    seen: Tensor
    action: Tensor
    logp: Tensor
    advantage: Tensor
    returns: Tensor
    order: Tensor  # rows of each part of each epoch

    def take(self, other: Batch) -> None:
        for name, tensor in vars(self).items():
            tensor.copy_(getattr(other, name), non_blocking=True)

    def to(self, device: str) -> Batch:
        return Batch(*(tensor.to(device) for tensor in vars(self).values()))


class Learner:
    """Updates the agent; on the npu by a graph from the second update on."""

    def __init__(self, agent: Agent, device: str, *, graphs: bool) -> None:
        self.agent, self.device = agent, device
        self.optimizer = torch.optim.Adam(
            agent.parameters(), lr=1e-3, eps=1e-5, capturable=device != "cpu"
        )
        self.graph = torch.npu.NPUGraph() if graphs and device == "npu" else None
        self.batch: Batch | None = None
        self.loss = torch.zeros((), device=device)

    def update(self, batch: Batch) -> float:
        """Return the last part's loss."""
        if self.batch is None:  # and the optimizer makes its state
            self.batch = batch.to(self.device)
            self._learn()
        elif self.graph is None:
            self.batch.take(batch)
            self._learn()
        else:
            if not hasattr(self, "captured"):
                with torch.npu.graph(self.graph):
                    self._learn()
                self.captured = True
            self.batch.take(batch)
            self.graph.replay()
        return self.loss.item()

    def _learn(self) -> None:
        b = self.batch
        for rows in b.order.flatten(0, 1):
            logps, value = self.agent(b.seen[rows])
            logp = logps.gather(1, b.action[rows].unsqueeze(1)).squeeze(1)
            ratio = (logp - b.logp[rows]).exp()
            gain = b.advantage[rows]
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
            policy = -torch.min(ratio * gain, ratio.clamp(1 - CLIP, 1 + CLIP) * gain)
            critic = F.mse_loss(value, b.returns[rows])
            entropy = -(logps.exp() * logps).sum(-1).mean()
            loss = policy.mean() + 0.5 * critic - 0.01 * entropy
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.agent.parameters(), 0.5)
            self.optimizer.step()
            self.loss.copy_(loss.detach())


def advantages(rewards: np.ndarray, values: np.ndarray, done: np.ndarray) -> np.ndarray:
    """Return generalised advantages; values has one row more, of what follows."""
    gain, found = np.zeros(ENVIRONMENTS), np.zeros_like(rewards)
    for t in reversed(range(STEPS)):
        alive = 1.0 - done[t]
        delta = rewards[t] + GAMMA * values[t + 1] * alive - values[t]
        found[t] = gain = delta + GAMMA * LAMBDA * alive * gain
    return found


class Actor:
    """Plays with the agent, and remembers what it saw."""

    def __init__(self, agent: Agent, device: str, seed: int) -> None:
        self.agent, self.device = agent, device
        self.poles = CartPoles(ENVIRONMENTS, seed)
        self.random = np.random.default_rng(seed + 1)
        self.now = self.poles.state.astype(np.float32)
        self.lengths: list[int] = []
        self.since = np.zeros(ENVIRONMENTS, dtype=int)

    @torch.no_grad()
    def _ask(self) -> tuple[np.ndarray, np.ndarray]:
        logps, value = self.agent(torch.from_numpy(self.now).to(self.device))
        told = torch.cat([logps, value.unsqueeze(1)], 1).cpu().numpy()  # one wait
        return told[:, :2], told[:, 2]

    def play(self) -> Batch:
        seen, actions, logps, values, dones = [], [], [], [], []
        for _ in range(STEPS):
            logp, value = self._ask()
            action = self.random.random(ENVIRONMENTS) < np.exp(logp[:, 1])
            seen.append(self.now)
            actions.append(action.astype(np.int64))
            logps.append(np.take_along_axis(logp, actions[-1][:, None], 1)[:, 0])
            values.append(value)
            self.now, done = self.poles.step(action)
            dones.append(done)
            self.since += 1
            self.lengths += list(self.since[done])
            self.since[done] = 0
        value = np.stack([*values, self._ask()[1]])
        gain = advantages(np.ones((STEPS, ENVIRONMENTS)), value, np.stack(dones))
        rows = ENVIRONMENTS * STEPS
        order = [self.random.permutation(rows) for _ in range(EPOCHS)]

        def flat(x: object) -> Tensor:
            return torch.from_numpy(np.asarray(x)).flatten(0, 1)

        return Batch(
            seen=flat(seen),
            action=flat(actions),
            logp=flat(logps),
            advantage=flat(gain).float(),
            returns=flat(gain + value[:-1]).float(),
            order=torch.from_numpy(np.stack(order)).view(EPOCHS, PARTS, -1),
        )


def train(
    device: str, updates: int, seed: int, *, graphs: bool
) -> tuple[list[float], float, float, float]:
    """Return losses, the mean length of late episodes, seconds: playing, learning."""
    torch.manual_seed(seed)
    agent = Agent().to(device)
    actor, learner = Actor(agent, device, seed), Learner(agent, device, graphs=graphs)
    losses, playing, learning = [], 0.0, []
    for _ in range(updates):
        began = time.perf_counter()
        batch = actor.play()
        played = time.perf_counter()
        losses.append(learner.update(batch))
        playing += played - began
        learning.append(time.perf_counter() - played)
    late = actor.lengths[-50:]
    # The first updates look for kernels and capture; they happen once.
    typical = float(np.median(learning[2:] or learning))
    return losses, float(np.mean(late)), playing, typical


@click.command()
@click.option("--updates", default=30, show_default=True)
@click.option("--seed", default=0, show_default=True)
def main(updates: int, seed: int) -> None:
    torch.set_num_threads(1)  # the tensors are small
    print("device                first loss   steps upright   one update")
    ways = (("cpu", "cpu", False), ("npu", "npu", False), ("npu, graph", "npu", True))
    for name, device, graphs in ways:
        losses, length, _, update = train(device, updates, seed, graphs=graphs)
        print(
            f"{name:20} {losses[0]:11.5f} {length:12.0f} {1e3 * update:12.1f} ms",
            flush=True,
        )


if __name__ == "__main__":
    main()
