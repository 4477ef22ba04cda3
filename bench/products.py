"""What products of matrices cost that are computed in pieces, npu against cpu.

The sizes are those from which several threads compute a product, and from which it is
left to the BLAS how (csrc/host/kernel_size.h). Two figures per size: of short blocks,
each of which begins with threads that sleep, and, as `long_ratio`, of blocks that are
ten times as long.
"""

from __future__ import annotations

import torch
from _harness import Effort, Only, bench
from _peers import Call, Peer, Workers, against_npu

# rows, what is summed over, columns
CASES = {
    "2_million": (128, 128, 128),
    "4_million": (128, 128, 256),
    "8_million": (128, 128, 512),
    "17_million": (256, 256, 256),
    "40_million_wide": (128, 784, 400),
    "40_million_tall": (784, 128, 400),
    "134_million": (512, 512, 512),
    "537_million": (2048, 512, 512),
}

SHORT, LONG = 40, 400  # products in a block


def make(peer: Peer, case: str) -> Call:
    rows, between, columns = CASES[case]
    a = torch.randn(rows, between).to(peer.device)
    b = torch.randn(between, columns).to(peer.device)
    small = torch.randn(100).to(peer.device)

    def call() -> None:
        torch.mm(a, b)
        small.add_(1)  # as a bias or a learning rate, between two products
        small.mul_(1)

    return call


@bench(repetitions=(15, 7, 1))
def main(repetitions: int, only: Only, peers: tuple[str, ...], effort: Effort) -> None:
    """Print a JSON line per size."""
    with Workers(*peers, effort=effort, make=make) as workers:
        for case in filter(only, CASES):
            long = workers.compare(case, LONG, repetitions, peers=("npu", "cpu"))
            more = {"long_ratio": against_npu(long)["ratio"]}
            workers.report(case, SHORT, repetitions, more=more)


if __name__ == "__main__":
    main()
