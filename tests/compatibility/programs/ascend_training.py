"""an Ascend training script that names cuda, with transfer_to_npu and a profile.

A small encoder with mixed precision, a prefetcher and the vendor's optimizer. Without
torch_npu it runs on cpu.
"""

import tempfile
from pathlib import Path

import torch
from torch import nn

try:
    import torch_npu
    from torch_npu.contrib import transfer_to_npu  # noqa: F401
except ImportError:
    torch_npu = None

LIBRARY = "torch"
UNCHANGED = "--torch-npu"
RELATIVE = 1e-3  # products of bfloat16

STEPS = 6


class Attention(nn.Module):
    def __init__(self, features=32, heads=4):
        super().__init__()
        self.heads = heads
        self.gamma = nn.Parameter(torch.ones(features))
        self.all = nn.Linear(features, 3 * features)
        self.gate = nn.Linear(features, 4 * features)
        self.out = nn.Linear(2 * features, features)

    def norm(self, x):
        if torch_npu:
            return torch_npu.npu_rms_norm(x, self.gamma, epsilon=1e-5)[0]
        return nn.functional.rms_norm(x, self.gamma.shape, self.gamma, 1e-5)

    def attend(self, q, k, v):
        mask = torch.ones(q.shape[1], q.shape[1], device=q.device).triu(1).bool()
        scale = (q.shape[-1] // self.heads) ** -0.5
        if torch_npu:
            return torch_npu.npu_fusion_attention(
                *(q, k, v, self.heads, "BSH"),
                atten_mask=mask,
                scale=scale,
                keep_prob=1.0,
                sparse_mode=0,
            )[0]
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        shares = (q @ k.mT * scale).masked_fill(mask, float("-inf")).softmax(-1)
        return (shares @ v).transpose(1, 2).flatten(2)

    def forward(self, x):
        x = x + self.attend(*self.all(self.norm(x)).chunk(3, -1))
        gate = self.gate(self.norm(x))
        if torch_npu:
            return x + self.out(torch_npu.npu_swiglu(gate, dim=-1))
        left, right = gate.chunk(2, -1)
        return x + self.out(nn.functional.silu(left) * right)


def batches():
    for _ in range(STEPS):
        x = torch.randn(4, 12, 32)
        yield x, x.cumsum(1)


def steps_of(device):
    """Yield pairs on the device, copied ahead where there is one."""
    if not torch_npu:
        yield from batches()
        return
    fetched = torch_npu.contrib.module.Prefetcher(batches())
    x, y = fetched.next()
    while x is not None:
        yield x, y
        x, y = fetched.next()


def profile_into(folder):
    profiler = torch_npu.profiler
    return profiler.profile(
        activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.NPU],
        schedule=profiler.schedule(wait=1, warmup=1, active=2, repeat=1),
        on_trace_ready=profiler.tensorboard_trace_handler(folder),
        with_stack=False,
        experimental_config=profiler._ExperimentalConfig(
            profiler_level=profiler.ProfilerLevel.Level1,
            aic_metrics=profiler.AiCMetrics.PipeUtilization,
            data_simplification=False,
        ),
    )


def run(device):
    device = torch.device(device, 0)
    torch.backends.cuda.matmul.allow_tf32 = False
    model = nn.Sequential(Attention(), Attention()).to(device)
    fused = torch_npu.optim.NpuFusedAdamW if torch_npu else torch.optim.AdamW
    optimizer = fused(model.parameters(), lr=1e-2)
    losses = []
    with tempfile.TemporaryDirectory() as folder:
        running = profile_into(folder) if torch_npu else None
        if running:
            running.start()
        for x, y in steps_of(device):
            with torch.autocast(device.type, torch.bfloat16):
                out = model(x)
            loss = nn.functional.mse_loss(out.float(), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if running:
                running.step()
        if running:
            running.stop()
            assert len(list(Path(folder).rglob("*.json"))) == 1
    return losses, out
