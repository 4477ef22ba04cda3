"""The memory that `npu-dispatch plan` predicts is what the real allocator takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

# Each makes `model` and `x`.
MODELS = {
    "mlp": """
model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512))
x = torch.ones(256, 512)
""",
    "cnn": """
model = nn.Sequential(
    nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    nn.Linear(64, 10))
x = torch.ones(16, 3, 48, 48)
""",
    "transformer": """
model = nn.TransformerEncoder(
    nn.TransformerEncoderLayer(128, 4, 512, batch_first=True), 2)
x = torch.ones(8, 64, 128)
""",
    "lstm": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(64, 128, 2, batch_first=True)
    def forward(self, x):
        return self.rnn(x)[0]
model = Net()
x = torch.ones(16, 32, 64)
""",
    "gru": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(64, 128, batch_first=True)
    def forward(self, x):
        return self.rnn(x)[0]
model = Net()
x = torch.ones(16, 32, 64)
""",
    "depthwise": """
model = nn.Sequential(
    nn.Conv2d(16, 16, 3, groups=16), nn.Hardswish(), nn.Conv2d(16, 64, 1))
x = torch.ones(16, 16, 64, 64)
""",
    "upsampling": """
model = nn.Sequential(
    nn.Conv2d(4, 16, 3, stride=2, padding=1), nn.GELU(),
    nn.ConvTranspose2d(16, 4, 4, stride=2, padding=1))
x = torch.ones(8, 4, 64, 64)
""",
    "checkpointed": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(256, 256) for _ in range(8))
    def forward(self, x):
        for part in self.parts:
            x = checkpoint(lambda y, part=part: part(y).relu(), x, use_reentrant=False)
        return x
model = Net()
x = torch.ones(512, 256, requires_grad=True)
""",
    "embedding": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.top = nn.Embedding(1000, 64), nn.Linear(64, 8)
    def forward(self, x):
        return self.top(self.table(x.long()))
model = Net()
x = torch.zeros(64, 32)
""",
    "normalised": """
model = nn.Sequential(
    nn.Linear(256, 256), nn.LayerNorm(256), nn.SiLU(), nn.Linear(256, 256),
    nn.Dropout(0.1), nn.Softmax(-1))
x = torch.ones(512, 256)
""",
}
QUICK = {"mlp", "cnn", "transformer"}

TRAINED = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
{made}
model, x = model.npu(), x.npu()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(6):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
torch.npu.synchronize()
print("peak", torch.npu.max_memory_allocated())
"""


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.nightly)
        for name in MODELS
    ],
)
def test_memory_is_within_five_percent_of_what_the_allocator_takes(
    python, tmp_path: Path, model: str
) -> None:
    script, out = tmp_path / "train.py", tmp_path / "plan.json"
    script.write_text(TRAINED.format(made=MODELS[model]))

    real = python.run(str(script)).stdout
    python.run(
        *("-m", "npu_dispatch", "plan", "--json", str(out), "--steps", "2"), str(script)
    )

    (report,) = json.loads(out.read_text())["reports"]
    (peak,) = (int(line.split()[1]) for line in real.splitlines() if "peak" in line)
    assert report["peak_allocated"] == pytest.approx(peak, rel=0.05)
