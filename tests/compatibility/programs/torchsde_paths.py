"""sdeint() along a given Brownian path, gradients."""

import torch
import torchsde

LIBRARY = "torchsde"


class System(torch.nn.Module):
    noise_type, sde_type = "diagonal", "ito"

    def __init__(self):
        super().__init__()
        self.drift = torch.nn.Linear(3, 3)

    def f(self, t, y):
        return self.drift(y).tanh()

    def g(self, t, y):
        return 0.0 * y + 0.1


class Known(torchsde.BrownianInterval):
    """The same path on each device: drawn on cpu."""

    def __init__(self, device):
        self.there = device
        super().__init__(0.0, 1.0, size=(4, 3), device="cpu", entropy=7)

    def __call__(self, ta, tb=None, **which):
        return super().__call__(ta, tb, **which).to(self.there)


def run(device):
    system = System().to(device)
    start = torch.full((4, 3), 0.1, device=device)
    times = torch.linspace(0, 1, 5, device=device)
    path = torchsde.sdeint(
        system, start, times, bm=Known(device), method="euler", dt=0.1
    )
    path[-1].square().sum().backward()
    return [
        *path[-1].flatten().tolist(),
        *(p.grad.sum().item() for p in system.parameters()),
    ]
