"""Hugging Face accelerate takes the npu by itself, and trains on it."""

from __future__ import annotations

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
