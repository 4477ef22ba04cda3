"""What one kernel costs that several threads could share, npu against cpu.

Each case is a kernel, after which two small ones follow, as a bias or a learning rate
would. `ps_per_element` is what it takes on one thread of cpu: the table in
csrc/host/kernel_cost.cpp. Kernels that are cut into pieces (csrc/host/kernel_cut.cpp),
that stay on one thread, and that have an OpenMP team are among them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from _harness import Effort, Only, bench
from _peers import Call, Peer, Times, Workers, against_npu
from torch import Tensor

SIDES = {"65k": 256, "262k": 512, "1m": 1024}  # of square matrices
CALLS = 40
KERNELS: dict[str, Callable[[Tensor, Tensor], object]] = {
    "add": torch.add,
    "exp": lambda a, b: a.exp(),
    "gelu": lambda a, b: F.gelu(a),
    "sqrt": lambda a, b: a.sqrt(),
    "tanh": lambda a, b: a.tanh(),
    "softmax": lambda a, b: a.softmax(-1),
    "layer_norm": lambda a, b: F.layer_norm(a, a.shape[-1:], b[0], b[1]),
    "foreach_addcmul": lambda a, b: torch._foreach_addcmul_([a, a], [b, b], [b, b], 0),
    "sum": lambda a, b: a.sum(0),
    "cat": lambda a, b: torch.cat((a, b)),
    "copy": lambda a, b: a.copy_(b),
    "bce": F.binary_cross_entropy,
}


def make(peer: Peer, case: str) -> Call:
    name, size = case.rsplit("_", 1)
    side = SIDES[size]
    a, b = (torch.rand(side, side).to(peer.device) for _ in range(2))
    small = torch.randn(100).to(peer.device)
    kernel = KERNELS[name]

    def call() -> None:
        kernel(a, b)
        small.add_(1)
        small.mul_(1)

    return call


@bench(repetitions=(15, 7, 1))
def main(repetitions: int, only: Only, peers: tuple[str, ...], effort: Effort) -> None:
    """Print a JSON line per kernel and size."""
    with Workers(*peers, effort=effort, make=make) as workers:
        for name, (size, side) in itertools.product(KERNELS, SIDES.items()):

            def figures(times: dict[str, Times], n: int = side**2) -> dict[str, float]:
                alone = times.get("cpu_one_thread", times["cpu"]).total
                return against_npu(times) | {"ps_per_element": round(1e6 * alone / n)}

            if only(case := f"{name}_{size}"):
                workers.report(case, CALLS, repetitions, figures)


if __name__ == "__main__":
    main()
