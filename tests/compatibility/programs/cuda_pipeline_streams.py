"""`npu-dispatch run --cuda` with two pipeline stages on two streams: 4 steps.

Stages wait by events and keep what the other uses, as torchgpipe's copies do.
"""

import torch
from torch import nn

LIBRARY = "torch"
UNCHANGED = "--cuda"

CHUNKS = 4


def pipelined(stages, x):
    streams = [torch.cuda.Stream() for _ in stages]
    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begun.record()
    for stream in streams:
        stream.wait_stream(torch.cuda.current_stream())
    chunks = list(x.chunk(CHUNKS))
    for tick in range(CHUNKS + len(stages) - 1):
        for place, stage in enumerate(stages):
            at = tick - place
            if not 0 <= at < CHUNKS:
                continue
            stream = streams[place]
            if place:
                stream.wait_stream(streams[place - 1])
            with torch.cuda.stream(stream):
                chunks[at].record_stream(stream)
                chunks[at] = stage(chunks[at])
    for stream in streams:
        torch.cuda.current_stream().wait_stream(stream)
    for chunk in chunks:
        chunk.record_stream(torch.cuda.current_stream())
    out = torch.cat(chunks)
    ended.record()
    ended.synchronize()
    assert begun.elapsed_time(ended) > 0
    return out


def run(device):
    stages = [
        nn.Sequential(nn.Linear(16, 48), nn.GELU()),
        nn.Sequential(nn.LayerNorm(48), nn.Linear(48, 4)),
    ]
    for stage in stages:
        stage.to(device)
    losses = []
    parameters = [p for stage in stages for p in stage.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    for step in range(4):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(CHUNKS * 3, 16, generator=generator).to(device)
        if device == "cuda":
            torch.cuda.nvtx.range_push(f"step {step}")
        out = pipelined(stages, x) if device == "cuda" else stages[1](stages[0](x))
        loss = out.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if device == "cuda":
            torch.cuda.nvtx.range_pop()
    return losses, x
