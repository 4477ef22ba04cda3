"""Trainer(accelerator="npu").fit(): 8 training steps."""

import lightning
import torch

LIBRARY = "lightning"
RANKS = {
    "lightning_ranks": {
        "what": 'Trainer with strategy="ddp" on two devices',
        "launcher": "",
        "devices": 2,
        "strategy": "ddp",
    }
}


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2)
        )
        self.losses = []

    def training_step(self, batch, _):
        x, y = batch
        loss = torch.nn.functional.cross_entropy(self.layers(x), y)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def run(device, devices=1, **options):
    model = Model()
    data = torch.utils.data.TensorDataset(torch.rand(32, 8), torch.arange(32) % 2)
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator=device,
        devices=devices,
        **options,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=4))
    assert trainer.strategy.root_device.type == device
    return model.losses
