"""odeint() with rk4 and with dopri5, odeint_adjoint(), gradients."""

import torch
from torchdiffeq import odeint, odeint_adjoint

LIBRARY = "torchdiffeq"


class Field(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2)
        )

    def forward(self, t, y):
        return self.net(y) * t.cos()


def run(device):
    field = Field().to(device)
    start = torch.tensor([[1.0, 0.0], [0.5, 0.5]], device=device)
    times = torch.linspace(0, 1, 5, device=device)
    found = []
    for solve, method in ((odeint, "rk4"), (odeint, "dopri5"), (odeint_adjoint, "rk4")):
        field.zero_grad()
        path = solve(field, start, times, method=method)
        path[-1].square().sum().backward()
        found += path[-1].flatten().tolist()
        found += [p.grad.sum().item() for p in field.parameters()]
    return found
