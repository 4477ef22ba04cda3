"""GAE and ClipPPOLoss: 4 training steps."""

import tiny
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential
from torchrl.modules import ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

LIBRARY = "torchrl"


def run(device):
    steps = TensorDict(
        {
            "observation": torch.rand(2, 10, 4),
            "action": torch.nn.functional.one_hot(torch.arange(20) % 2, 2).view(
                2, 10, 2
            ),
            "sample_log_prob": torch.full((2, 10), -0.7),
            "action_log_prob": torch.full((2, 10), -0.7),
            "next": {
                "observation": torch.rand(2, 10, 4),
                "reward": torch.rand(2, 10, 1),
                "done": torch.zeros(2, 10, 1, dtype=torch.bool),
                "terminated": torch.zeros(2, 10, 1, dtype=torch.bool),
            },
        },
        [2, 10],
    ).to(device)
    logits = TensorDictModule(torch.nn.Linear(4, 2), ["observation"], ["logits"])
    actor = ProbabilisticActor(
        TensorDictSequential(logits),
        in_keys=["logits"],
        distribution_class=torch.distributions.OneHotCategorical,
        return_log_prob=True,
    ).to(device)
    critic = ValueOperator(torch.nn.Linear(4, 1), in_keys=["observation"]).to(device)
    advantage = GAE(gamma=0.99, lmbda=0.95, value_network=critic)
    losses = ClipPPOLoss(actor, critic)
    optimizer = torch.optim.SGD(losses.parameters(), lr=0.1)

    def loss_of():
        with torch.no_grad():
            advantage(steps)
        told = losses(steps.reshape(-1))
        return told["loss_objective"] + told["loss_critic"] + told["loss_entropy"]

    return tiny.train(optimizer, loss_of, 4)
