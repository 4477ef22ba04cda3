"""What a training step costs when its shape changes every time, npu against cpu.

A transformer encoder layer with another length (1-256) and batch (1-16) at each
step, as text, graphs and detection have them: forward, backward and SGD. Every
peer makes the same steps in the same order, the largest first. What its process
has grown by at the end, since that step's block, is what such steps leave
behind.
"""

from __future__ import annotations

import gc
import random

import torch
from _harness import Effort, bench, emit, resident_bytes
from _peers import WARM_UPS, Call, Peer, Workers
from torch import nn

WIDTH, LENGTHS, BATCHES = 64, 256, 16


def encoder_steps(peer: Peer, _: str) -> Call:
    """Return a layer's next training step: width 64, four heads."""
    torch.manual_seed(0)
    draw = random.Random(0)
    layer = nn.TransformerEncoderLayer(
        WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True
    ).to(peer.device)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1e-3, foreach=True)
    inputs = torch.rand(BATCHES, LENGTHS, WIDTH).to(peer.device)
    shape = BATCHES, LENGTHS

    def loss(x: torch.Tensor) -> torch.Tensor:
        return layer(x).square().mean()

    loss = peer.compiled(loss, dynamic=True)

    def step() -> None:
        nonlocal shape
        batch, length = shape
        x = inputs[:batch, :length].contiguous()
        optimizer.zero_grad(set_to_none=True)
        loss(x).backward()
        optimizer.step()
        shape = draw.randint(1, BATCHES), draw.randint(1, LENGTHS)

    return step


def memory(peer: Peer) -> int:
    """Return the bytes of the process."""
    gc.collect()
    peer.wait()
    return resident_bytes()


@bench(steps=(1600, 400, 1), block=(40, 40, 1))
def main(steps: int, block: int, peers: tuple[str, ...], effort: Effort) -> None:
    """Print a JSON line for the time, and one for the memory."""
    with Workers(*peers, effort=effort, make=encoder_steps) as workers:
        for peer in peers:
            workers.time(peer, "encoder", block)
        before = {peer: workers.ask(peer, memory) for peer in peers}
        repetitions = max(1, steps // block - WARM_UPS)
        workers.report("encoder", block, repetitions)
        after = {peer: workers.ask(peer, memory) for peer in peers}
    emit(
        case="memory",
        steps=(repetitions + WARM_UPS) * block,
        **{
            f"{peer}_grown_mb": round((after[peer] - before[peer]) / 1e6, 1)
            for peer in peers
        },
    )


if __name__ == "__main__":
    main()
