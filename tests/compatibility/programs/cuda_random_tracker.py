"""`npu-dispatch run --cuda` with dropout under named random states, recomputed.

A tracker keeps a state of the device's generator for each name, as Megatron's does.
"""

import contextlib

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

LIBRARY = "torch"
UNCHANGED = "--cuda"


def get_state():
    if torch.cuda.is_available():
        return torch.cuda.default_generators[torch.cuda.current_device()].get_state()
    return torch.get_rng_state()


def set_state(state):
    if torch.cuda.is_available():
        index = torch.cuda.current_device()
        torch.cuda._lazy_call(
            lambda: torch.cuda.default_generators[index].set_state(state)
        )
    else:
        torch.set_rng_state(state)


class Tracker:
    def __init__(self):
        self.states = {}

    def add(self, name, seed):
        before = get_state()
        torch.manual_seed(seed)
        self.states[name] = get_state()
        set_state(before)

    @contextlib.contextmanager
    def fork(self, name="model-parallel"):
        before = get_state()
        set_state(self.states[name])
        try:
            yield
        finally:
            self.states[name] = get_state()
            set_state(before)


def gradients(layers, x, tracker, recomputed):
    def block(layer, x):
        with tracker.fork():
            return F.dropout(torch.tanh(layer(x)), 0.4)

    for layer in layers:
        if recomputed:
            # Both runs of a block draw from the state that the first one met.
            kept = tracker.states["model-parallel"]

            def again(x, layer=layer, kept=kept):
                tracker.states["model-parallel"] = kept
                return block(layer, x)

            x = checkpoint(again, x, use_reentrant=True)
        else:
            x = block(layer, x)
    x.square().mean().backward()
    found = [p.grad.clone() for p in layers.parameters()]
    layers.zero_grad()
    return found


def run(device):
    layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(3)).to(device)
    x = torch.linspace(-1, 1, 64).view(4, 16).to(device).requires_grad_()
    tracker = Tracker()
    outside = get_state()
    tracker.add("model-parallel", 1234)
    assert torch.equal(get_state(), outside)
    begin = tracker.states["model-parallel"]
    plain = gradients(layers, x, tracker, recomputed=False)
    assert torch.equal(get_state(), outside)
    other = gradients(layers, x, tracker, recomputed=False)
    tracker.states["model-parallel"] = begin
    same = gradients(layers, x, tracker, recomputed=True)
    # The masks are the device's own; what must hold is that they repeat.
    repeats = [(a - b).abs().max().item() for a, b in zip(plain, same, strict=True)]
    differs = any(not torch.equal(a, b) for a, b in zip(plain, other, strict=True))
    return [1 + sum(repeats), float(differs)], plain[0]
