"""What learning by reinforcement costs, npu against cpu: stable-baselines3's programs
as they are, and one update of PPO in one graph.

A call goes on with learning for some steps of a small environment, so it contains the
environment, the policy that acts, and the updates. Networks, seeds and hyperparameters
are the library's defaults, but for rollouts and starts that are shorter.
"""

from __future__ import annotations

from typing import Any

import torch
from _harness import Effort, Only, bench, emit, geometric_mean
from _peers import Call, Peer, Workers
from torch import Tensor, nn
from training import KINDS, captured

SHORTER = {
    "PPO": {"n_steps": 128},
    "DQN": {"learning_starts": 50},
    "SAC": {"learning_starts": 50},
}
# case: algorithm, environment, steps of it in a call
PROGRAMS = {
    "ppo": ("PPO", "CartPole-v1", 128),
    "a2c": ("A2C", "CartPole-v1", 100),
    "dqn": ("DQN", "CartPole-v1", 200),
    "sac": ("SAC", "Pendulum-v1", 25),
}
UPDATE, UPDATES = "ppo_update", 20


def learner(algorithm: str, environment: str, device: str) -> Any:
    import stable_baselines3

    kind = getattr(stable_baselines3, algorithm)
    shorter = SHORTER.get(algorithm, {})
    return kind("MlpPolicy", environment, seed=0, device=device, **shorter)


def learning(peer: Peer, case: str) -> Call:
    algorithm, environment, steps = PROGRAMS[case]
    model = learner(algorithm, environment, peer.device)
    model.learn(max(steps, 100))  # past the start, which has no updates

    def call() -> None:
        model.learn(steps, reset_num_timesteps=False)

    return call


def loss_of(policy: Any, *batch: Tensor) -> Tensor:
    """Return PPO's loss of one batch, as stable-baselines3 has it."""
    seen, actions, old_odds, advantages, returns = batch
    values, odds, entropy = policy.evaluate_actions(seen, actions)
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    ratio = torch.exp(odds - old_odds)
    clipped = torch.clamp(ratio, 0.8, 1.2)
    gained = torch.min(advantages * ratio, advantages * clipped).mean()
    missed = nn.functional.mse_loss(returns, values.flatten())
    return 0.5 * missed - gained - 0.0 * entropy.mean()


def update(peer: Peer) -> Call:
    """One update with a batch of 64: on npu the whole of it is a replay."""
    # A check of each distribution waits for its values; no graph has those. The last
    # case of its process: it changes all distributions that are made later.
    torch.distributions.Distribution.set_default_validate_args(False)
    policy = learner("PPO", "CartPole-v1", peer.device).policy
    torch.manual_seed(0)
    batch = (
        torch.rand(64, 4),
        torch.randint(2, (64,)),
        torch.rand(64).log(),
        torch.randn(64),
        torch.rand(64),
    )
    batch = tuple(t.to(peer.device) for t in batch)
    # The same kind of kernels on both devices; these count steps on the device.
    optimizer = torch.optim.Adam(policy.parameters(), 3e-4, eps=1e-5, **KINDS["fused"])

    def call() -> None:
        optimizer.zero_grad(set_to_none=False)  # as in a graph
        loss_of(policy, *batch).backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
        optimizer.step()

    if peer.device == "cpu":
        return call
    # The policy keeps its last distribution, whose backward is of this stream, too.
    return captured(call, torch.npu.Stream())


def make(peer: Peer, case: str) -> Call:
    return update(peer) if case == UPDATE else learning(peer, case)


@bench(repetitions=(5, 3, 1))
def main(repetitions: int, only: Only, effort: Effort) -> None:
    """Print a JSON line per program; `ratio` is npu's time over cpu's until done."""
    with Workers("npu", "cpu", effort=effort, make=make) as workers:
        ratios = [
            workers.report(case, 1, repetitions)["ratio"]
            for case in filter(only, PROGRAMS)
        ]
        if only(UPDATE):
            workers.report(UPDATE, UPDATES, repetitions)
    if ratios:
        emit(case="geometric_mean", ratio=round(geometric_mean(ratios), 3))


if __name__ == "__main__":
    main()
