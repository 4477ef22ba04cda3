"""DQN on CartPole: 50 updates; outputs of the network."""

import torch
from stable_baselines3 import DQN

LIBRARY = "stable-baselines3"
NEEDS = ("gymnasium",)
RELATIVE = 0.001


def run(device):
    model = DQN("MlpPolicy", "CartPole-v1", seed=0, learning_starts=50, device=device)
    model.learn(250)
    seen = torch.linspace(-0.2, 0.2, 40).view(10, 4).to(device)
    with torch.no_grad():
        return model.q_net(seen).flatten().tolist()
