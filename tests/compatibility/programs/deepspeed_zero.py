import os
import tempfile

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator

LIBRARY = "deepspeed"
ALIAS = True
RANKS = {
    "deepspeed_zero_1": {
        "what": "ZeRO stage 1 on two ranks, gradient accumulation, clipping: 8 batches",
        "stage": 1,
    },
    "deepspeed_zero_3": {
        "what": "ZeRO stage 3 on two ranks, gradient accumulation, clipping: 8 batches",
        "stage": 3,
    },
}


def run(device, stage):
    assert get_accelerator().device_name() == device
    # DeepSpeed reads it for compilers' options, and compiles nothing for npu here.
    os.environ.setdefault("ASCEND_HOME_PATH", tempfile.gettempdir())
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2)
    )
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 2,
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": stage},
    }
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    assert engine.device.type == device and engine.zero_optimization_stage() == stage
    rank = torch.distributed.get_rank()
    losses = []
    for step in range(8):
        generator = torch.Generator().manual_seed(2 * step + rank)
        x = torch.rand(4, 8, generator=generator).to(engine.device)
        y = torch.arange(4, device=engine.device) % 2
        loss = torch.nn.functional.cross_entropy(engine(x), y)
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    return losses
