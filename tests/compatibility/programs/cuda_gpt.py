"""`npu-dispatch run --cuda` with a GPT for cuda: 8 training steps in bf16, samples.

A small GPT: mixed precision, accumulation, a schedule, samples; for CUDA.
"""

import contextlib
import inspect
import math

import tiny
import torch
from torch import nn
from torch.nn import functional as F

LIBRARY = "torch"
UNCHANGED = "--cuda"
RELATIVE = 0.02

WIDTH, HEADS, LENGTH, WORDS = 32, 4, 16, 64


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x):
        n, t, _ = x.shape
        parts = self.qkv(self.first(x)).view(n, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(n, t, WIDTH))
        return x + self.mlp(self.second(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(Block(), Block())
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids):
        places = torch.arange(ids.shape[1], dtype=torch.long, device=ids.device)
        return self.head(self.norm(self.blocks(self.words(ids) + self.places(places))))

    @torch.no_grad()
    def generate(self, ids, n):
        for _ in range(n):
            logits = self(ids[:, -LENGTH:])[:, -1]
            least = torch.topk(logits, 1).values[:, [-1]]
            logits[logits < least] = -float("inf")
            drawn = torch.multinomial(F.softmax(logits.float(), dim=-1), 1)
            ids = torch.cat((ids, drawn), dim=1)
        return ids


def adamw(model, device):
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    has_fused = "fused" in inspect.signature(torch.optim.AdamW).parameters
    options = {"fused": True} if has_fused and "cuda" in device else {}
    groups = [
        {"params": decayed, "weight_decay": 0.1},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95), **options)


def batch(step, device):
    ids = tiny.tokens(4, LENGTH + 1, WORDS, seed=step)
    x, y = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    if "cuda" in device:
        return [t.pin_memory().to(device, non_blocking=True) for t in (x, y)]
    return x.to(device), y.to(device)


def run(device):
    torch.backends.cuda.matmul.allow_tf32 = True
    kind = torch.bfloat16
    mixed = torch.amp.autocast(device_type=device, dtype=kind)
    scaler = torch.amp.GradScaler(device, enabled=kind == torch.float16)
    model = GPT().to(device)
    optimizer = adamw(model, device)
    losses = []
    for step in range(8):
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * (1 + math.cos(math.pi * step / 8)) / 2
        for part in range(2):
            x, y = batch(2 * step + part, device)
            with mixed if kind != torch.float32 else contextlib.nullcontext():
                loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten()) / 2
            scaler.scale(loss).backward()
            losses.append(loss.item())
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
    model.eval()
    made = model.generate(x[:1, :4], 8)
    assert made.shape == (1, 12)
    return [*losses, *(1 + made).flatten().tolist()], made
