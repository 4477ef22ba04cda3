from stable_baselines3 import PPO
from stable_baselines3.common.logger import configure


def run(device):
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, seed=0, device=device)
    assert model.policy.device.type == device
    model.set_logger(configure(None, []))
    model.learn(64)
    told = model.logger.name_to_value
    parameters = sum(p.detach().double().abs().sum() for p in model.policy.parameters())
    return [
        told["train/value_loss"],
        told["train/entropy_loss"],
        parameters.item(),
    ]
