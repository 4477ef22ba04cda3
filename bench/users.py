"""What users' own training programs cost until a step is retired, npu against cpu.

A transformer with and without dropout, and an LSTM with dropout and clipped
gradients, as one writes them; on npu also by compile_step(), and compiled on both.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from _harness import Effort, bench, emit
from _peers import (
    BY_NAME,
    Call,
    Peer,
    Workers,
    microseconds,
    serve_if_worker,
    timer,
)
from steps import step_of
from torch import Tensor, nn

WHOLE_STEP = "npu_whole_step"
BY_NAME[WHOLE_STEP] = Peer(WHOLE_STEP, "npu")
BY_NAME["npu_compiled"] = Peer("npu_compiled", "npu", backend="inductor")
PEERS = ("cpu", "npu", WHOLE_STEP)
COMPILED = ("cpu_compiled", "npu_compiled")
BATCH, LENGTH, WIDTH, CLASSES = 16, 16, 128, 10


class Classifier(nn.Module):
    """A network over sequences, whose mean is classified."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        found = self.network(x)
        sequence = found[0] if isinstance(found, tuple) else found
        return self.head(sequence.mean(1))


def transformer(dropout: float) -> nn.Module:
    layer = nn.TransformerEncoderLayer(
        WIDTH, 4, dim_feedforward=4 * WIDTH, dropout=dropout, batch_first=True
    )
    return nn.TransformerEncoder(layer, 2)


CASES: dict[str, Callable[[], nn.Module]] = {
    "transformer_dropout": lambda: transformer(0.1),
    "transformer": lambda: transformer(0.0),
    "lstm": lambda: nn.LSTM(WIDTH, WIDTH, 2, batch_first=True, dropout=0.1),
}


def make(peer: Peer, case: str) -> Call:
    torch.manual_seed(0)
    model = Classifier(CASES[case]()).to(peer.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    x = torch.rand(BATCH, LENGTH, WIDTH).to(peer.device)
    y = torch.randint(CLASSES, (BATCH,)).to(peer.device)
    whole = {"whole": True} if peer.name == WHOLE_STEP else {}
    return step_of(peer, model, optimizer, F.cross_entropy, (x, y), **whole)


@bench(repetitions=(8, 4, 1), compiled=(1, 1, 0))
def main(repetitions: int, compiled: int, only: str, effort: Effort) -> None:
    """Print a JSON line per case; compiled=0 leaves torch.compile out."""
    peers = (*PEERS, *(COMPILED if compiled else ()))
    with Workers(*peers, effort=effort) as workers:
        for case in CASES:
            if only not in case:
                continue
            times = workers.compare(case, 5, repetitions, same_cpu=True)
            ratios = {
                f"{peer}_ratio": round(found.total / times["cpu"].total, 3)
                for peer, found in times.items()
                if peer != "cpu"
            }
            emit(case=case, **ratios, **microseconds(times))


if __name__ == "__main__":
    serve_if_worker(time=timer(make))
    main()
