"""prepare(), gradient accumulation, gradient clipping: 8 batches."""

import torch
from accelerate import Accelerator

LIBRARY = "accelerate"
ALIAS = True
RANKS = {
    "accelerate_ranks": {
        "what": "prepare(), accumulation and clipping on two ranks of torchrun"
    },
    "accelerate_launch": {
        "what": "prepare(), accumulation, clipping on two ranks of accelerate launch",
        "launcher": "accelerate",
    },
}


def run(device):
    accelerator = Accelerator(cpu=device == "cpu", gradient_accumulation_steps=2)
    assert accelerator.device.type == device
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    data = torch.utils.data.TensorDataset(torch.rand(32, 8), torch.arange(32) % 2)
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    assert losses[0] != losses[-1]
    return losses
