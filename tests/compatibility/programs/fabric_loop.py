"""Fabric: 4 training steps, gradient clipping."""

import lightning
import torch

LIBRARY = "lightning"
RANKS = {
    "fabric_ranks": {
        "what": 'Fabric with strategy="ddp" on two devices',
        "launcher": "",
        "devices": 2,
        "strategy": "ddp",
    }
}


def run(device, devices=1, **options):
    fabric = lightning.Fabric(accelerator=device, devices=devices, **options)
    fabric.launch()
    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = fabric.setup(model, optimizer)
    data = torch.utils.data.TensorDataset(torch.rand(32, 8), torch.arange(32) % 2)
    loader = fabric.setup_dataloaders(torch.utils.data.DataLoader(data, batch_size=8))
    losses = []
    for x, y in loader:
        assert x.device.type == device
        loss = torch.nn.functional.cross_entropy(model(x), y)
        fabric.backward(loss)
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses
