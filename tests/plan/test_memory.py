"""The memory that `npu-dispatch plan` predicts is what the real allocator takes."""

from __future__ import annotations

import pytest

# Each is a model, and what it is given.
MODELS = {
    "mlp": (
        "nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512))",
        "torch.ones(256, 512)",
    ),
    "cnn": (
        """nn.Sequential(
    nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    nn.Linear(64, 10))""",
        "torch.ones(16, 3, 48, 48)",
    ),
    "transformer": (
        """nn.TransformerEncoder(
    nn.TransformerEncoderLayer(128, 4, 512, batch_first=True), 2)""",
        "torch.ones(8, 64, 128)",
    ),
    "lstm": ("First(nn.LSTM(64, 128, 2, batch_first=True))", "torch.ones(16, 32, 64)"),
    "gru": ("First(nn.GRU(64, 128, batch_first=True))", "torch.ones(16, 32, 64)"),
    "depthwise": (
        """nn.Sequential(
    nn.Conv2d(16, 16, 3, groups=16), nn.Hardswish(), nn.Conv2d(16, 64, 1))""",
        "torch.ones(16, 16, 64, 64)",
    ),
    "upsampling": (
        """nn.Sequential(
    nn.Conv2d(4, 16, 3, stride=2, padding=1), nn.GELU(),
    nn.ConvTranspose2d(16, 4, 4, stride=2, padding=1))""",
        "torch.ones(8, 4, 64, 64)",
    ),
    "checkpointed": (
        "nn.Sequential(*(Checkpointed(nn.Linear(256, 256)) for _ in range(8)))",
        "torch.ones(512, 256, requires_grad=True)",
    ),
    "embedding": (
        "nn.Sequential(nn.Embedding(1000, 64), nn.Linear(64, 8))",
        "torch.zeros(64, 32, dtype=torch.long)",
    ),
    "normalised": (
        """nn.Sequential(
    nn.Linear(256, 256), nn.LayerNorm(256), nn.SiLU(), nn.Linear(256, 256),
    nn.Dropout(0.1), nn.Softmax(-1))""",
        "torch.ones(512, 256)",
    ),
}
QUICK = {"mlp", "cnn", "transformer"}

TRAINED = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
class First(nn.Module):
    def __init__(self, part):
        super().__init__()
        self.part = part
    def forward(self, x):
        return self.part(x)[0]
class Checkpointed(First):
    def forward(self, x):
        return checkpoint(lambda y: self.part(y).relu(), x, use_reentrant=False)
model, x = MODEL.npu(), GIVEN.npu()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(6):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
torch.npu.synchronize()
print("peak", torch.npu.max_memory_allocated())
"""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.nightly)
        for name in MODELS
    ],
)
def test_memory_is_within_five_percent_of_what_the_allocator_takes(
    python, planned, name: str
) -> None:
    model, given = MODELS[name]
    program = TRAINED.replace("MODEL", model).replace("GIVEN", given)

    peak = int(python(program).stdout.split()[-1])

    report = planned(program, 1, "--steps", "2").report
    assert report["peak_allocated"] == pytest.approx(peak, rel=0.05)
