"""`npu-dispatch run --cuda` with optimizer states in pinned memory: 8 steps.

Each gradient goes to the host when backward has it, as DeepSpeed's offload does.
"""

import tiny
import torch
from torch import nn

LIBRARY = "torch"
UNCHANGED = "--cuda"


class Offloaded:
    def __init__(self, parameters):
        self.parameters = list(parameters)
        self.copies = torch.cuda.Stream()
        self.masters, self.grads, self.arrived = [], [], {}
        for p in self.parameters:
            master = p.detach().cpu().pin_memory()
            master.grad = torch.zeros_like(master).pin_memory()
            self.masters.append(master)
            p.register_post_accumulate_grad_hook(self.leave)
        self.host = torch.optim.AdamW(self.masters, lr=0.02)

    def leave(self, p):
        place = next(i for i, q in enumerate(self.parameters) if q is p)
        self.copies.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.copies):
            self.masters[place].grad.copy_(p.grad, non_blocking=True)
            p.grad.record_stream(self.copies)
            self.arrived[place] = torch.cuda.Event()
            self.arrived[place].record()
        p.grad = None

    def zero_grad(self):
        """Leave nothing to do: each gradient went when it was there."""

    def step(self):
        for event in self.arrived.values():
            event.synchronize()
        self.arrived.clear()
        self.host.step()
        with torch.cuda.stream(self.copies):
            for p, master in zip(self.parameters, self.masters, strict=True):
                p.data.copy_(master, non_blocking=True)
        torch.cuda.current_stream().wait_stream(self.copies)
        # The next gradients are written to memory that these copies may still read.
        self.copies.synchronize()


def run(device):
    model = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 1)).to(device)
    if device == "cuda":
        optimizer = Offloaded(model.parameters())
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    seeds = iter(range(8))

    def loss():
        generator = torch.Generator().manual_seed(next(seeds))
        x = torch.randn(10, 16, generator=generator).to(device)
        return (model(x).squeeze(1) - x.sum(1)).square().mean()

    losses = tiny.train(optimizer, loss, 8)
    return losses, next(model.parameters())
