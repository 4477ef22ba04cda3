"""Hugging Face accelerate takes the npu by itself, and trains on it."""

from __future__ import annotations

import pytest
from interpreter import environment

PROGRAM = """
import torch
from accelerate import Accelerator
from accelerate.utils import is_npu_available, set_seed

assert is_npu_available()
set_seed(3)
accelerator = Accelerator(mixed_precision="bf16")
assert accelerator.device.type == "npu"
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randn(64, 2))
loader = torch.utils.data.DataLoader(data, batch_size=16)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
losses = []
for _ in range(5):
    for x, y in loader:
        assert x.device.type == "npu"
        loss = (model(x).float() - y).pow(2).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
accelerator.save_state("state")
accelerator.load_state("state")
print(losses[-1] < losses[0])
"""


def test_training_with_accelerate(python):
    result = python(PROGRAM, NPU_DISPATCH_TORCH_NPU_ALIAS="1")

    assert result.stdout.splitlines()[-1] == "True"


def test_its_report_of_the_environment(python):
    result = python.run(
        "-m",
        "accelerate.commands.accelerate_cli",
        "env",
        env=environment(NPU_DISPATCH_TORCH_NPU_ALIAS="1"),
    )

    assert result.returncode == 0, result.stderr
    assert "PyTorch accelerator: NPU" in result.stdout


SAME_LOSSES = """
import sys, torch
from accelerate import Accelerator
from torch import nn

torch.manual_seed(0)
accelerator = Accelerator(cpu=sys.argv[1] == "cpu", gradient_accumulation_steps=2)
embedding, head = nn.Embedding(11, 8), nn.Linear(8, 11, bias=False)
head.weight = embedding.weight  # a language model's
model = nn.Sequential(embedding, nn.Tanh(), head)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-1)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=5)
tokens = torch.arange(30) % 11
data = [(tokens[i : i + 4], tokens[i + 1 : i + 5]) for i in range(24)]
loader = torch.utils.data.DataLoader(data, batch_size=4)
model, optimizer, loader, schedule = accelerator.prepare(
    model, optimizer, loader, schedule
)
assert accelerator.device.type == sys.argv[1]
for x, y in loader:
    with accelerator.accumulate(model):
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step(); schedule.step(); optimizer.zero_grad()
    print(f"{loss.item():.4f}")
"""


@pytest.mark.parametrize(
    "switch", ["NPU_DISPATCH_TORCH_NPU_ALIAS", "NPU_DISPATCH_CUDA"]
)
def test_an_optimizer_made_before_prepare_gives_the_losses_of_cpu(python, switch):
    losses = [
        [
            float(line)
            for line in python(SAME_LOSSES, device, **{switch: "1"}).stdout.split()
        ]
        for device in ("cpu", "npu")
    ]

    assert losses[1] == pytest.approx(losses[0], abs=2e-4)
    assert losses[1][-1] < losses[1][0] - 0.1
