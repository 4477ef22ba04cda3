"""PPO on CartPole: one update with rollouts from cpu; losses and weights."""

from stable_baselines3 import PPO
from stable_baselines3.common.logger import configure
from stable_baselines3.common.utils import set_random_seed

LIBRARY = "stable-baselines3"
NEEDS = ("gymnasium",)
RELATIVE = 0.001


def learner(device):
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=128, seed=0, device=device)
    assert model.policy.device.type == device
    model.set_logger(configure(None, []))
    return model


def run(device):
    # Each device draws actions of its own: both learn from what cpu has played.
    played = learner("cpu")
    played.learn(128)
    model = learner(device)
    buffer = model.rollout_buffer = played.rollout_buffer
    buffer.device = model.device
    model._current_progress_remaining = 1.0
    set_random_seed(1)  # of the order of the batches
    model.train()
    told = model.logger.name_to_value
    parameters = sum(p.detach().double().abs().sum() for p in model.policy.parameters())
    return [
        told["train/loss"],
        told["train/value_loss"],
        told["train/entropy_loss"],
        parameters.item(),
    ]
