"""two layers of leaky neurons over 10 time steps, gradients."""

import snntorch
import torch
from snntorch import surrogate

LIBRARY = "snntorch"


def run(device):
    first, second = torch.nn.Linear(8, 16).to(device), torch.nn.Linear(16, 2).to(device)
    neuron = snntorch.Leaky(beta=0.9, spike_grad=surrogate.fast_sigmoid()).to(device)
    out = snntorch.Leaky(beta=0.9, spike_grad=surrogate.fast_sigmoid()).to(device)
    x = torch.rand(10, 4, 8).to(device) * 3
    state, last = neuron.init_leaky(), out.init_leaky()
    spikes = []
    for step in x:
        spike, state = neuron(first(step), state)
        spike, last = out(second(spike), last)
        spikes.append(spike)
    loss = last.square().mean() + torch.stack(spikes).mean()
    loss.backward()
    return [
        loss.item(),
        first.weight.grad.abs().sum().item(),
        *torch.stack(spikes).sum(0).flatten().tolist(),
    ]
