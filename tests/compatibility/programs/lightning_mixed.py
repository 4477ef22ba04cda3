"""Trainer with precision="bf16-mixed": 8 training steps."""

import lightning_fit
import torch

LIBRARY = "lightning"
RELATIVE = 0.02


class Model(lightning_fit.Model):
    def training_step(self, batch, index):
        assert self.layers(batch[0]).dtype == torch.bfloat16
        return super().training_step(batch, index)


def run(device):
    lightning_fit.Model, before = Model, lightning_fit.Model
    try:
        return lightning_fit.run(device, precision="bf16-mixed")
    finally:
        lightning_fit.Model = before
