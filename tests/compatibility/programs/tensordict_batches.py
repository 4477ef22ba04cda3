"""TensorDict, TensorDictModule, gradients of a loss."""

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential

LIBRARY = "tensordict"


def run(device):
    x = torch.rand(6, 4)
    batch = TensorDict({"x": x, "inner": {"y": x * 2}}, batch_size=[6]).to(device)
    assert batch.device.type == torch.device(device).type
    net = TensorDictSequential(
        TensorDictModule(torch.nn.Linear(4, 8), ["x"], ["hidden"]),
        TensorDictModule(torch.nn.Linear(8, 2), ["hidden"], ["out"]),
    ).to(device)
    loss = net(batch)["out"].square().mean() + batch["inner", "y"].sum()
    loss.backward()
    joined = torch.cat([batch[:2], batch[4:]]).apply(lambda t: t * 3)
    return [
        loss.item(),
        *(p.grad.sum().item() for p in net.parameters()),
        joined["inner", "y"].sum().item(),
        batch.reshape(2, 3)["x"][1].sum().item(),
        batch.cpu()["hidden"].sum().item(),
    ]
