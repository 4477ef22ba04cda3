"""What one small operator costs its caller, npu against cpu.

Two figures per case: until the call returns, and until its task is retired. The
queue never fills: a block is shorter than the ring. The geometric means are of
the operators on 8x8 tensors; `boxed_` cases go the way of operators without
generated code.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from _harness import Effort, Only, bench, emit, geometric_mean
from _peers import Call, Peer, Workers, against_npu, microseconds

OF_A_LIST = 100  # tensors


def small(device: str) -> dict[str, Call]:
    """Return {name: call} on 8x8 tensors."""
    torch.manual_seed(0)
    a, b, out = (torch.rand(8, 8).to(device) for _ in range(3))
    x = torch.rand(8, 8).to(device)
    linear = torch.nn.Linear(8, 8).to(device)
    host = torch.rand(8, 8).to(device)
    return {
        "add": lambda: torch.add(a, b),
        "add_out": lambda: torch.add(a, b, out=out),
        "add_": lambda: x.add_(b),
        "mm": lambda: torch.mm(a, b),
        "relu_": lambda: x.relu_(),
        "sum": lambda: a.sum(),
        "cat": lambda: torch.cat((a, b)),
        "softmax": lambda: torch.softmax(a, -1),
        "view": lambda: a.view(64),
        "copy_": lambda: out.copy_(host),
        "linear_grad": lambda: linear(a),
    }


def boxed(device: str) -> dict[str, Call]:
    torch.manual_seed(0)
    table, index = torch.rand(100, 8), torch.randint(100, (8,))
    table, index = table.to(device), index.to(device)
    image, kernel = torch.rand(1, 3, 8, 8), torch.rand(4, 3, 3, 3)
    image, kernel = image.to(device), kernel.to(device)
    many = [torch.rand(8).to(device) for _ in range(OF_A_LIST)]
    return {
        "boxed_embedding": lambda: F.embedding(index, table),
        "boxed_conv2d": lambda: F.conv2d(image, kernel, padding=1),
        "boxed_foreach_100": lambda: torch._foreach_add_(many, 1.0),
    }


def make(peer: Peer, case: str) -> Call:
    return (small(peer.device) | boxed(peer.device))[case]


@bench(calls=(500, 500, 1), repetitions=(20, 8, 1))
def main(
    calls: int, repetitions: int, only: Only, peers: tuple[str, ...], effort: Effort
) -> None:
    """Print a JSON line per case, then the geometric means."""
    host_ratios, total_ratios = [], []
    # A compiler has nothing to do for one operator.
    with Workers(*peers[:3], effort=effort, make=make) as workers:
        for case in filter(only, small("cpu") | boxed("cpu")):
            times = workers.compare(case, calls, repetitions, same_cpu=True)
            until_returned = against_npu(times, "host")
            total = against_npu(times)
            if not case.startswith("boxed"):
                host_ratios.append(until_returned["ratio"])
                total_ratios.append(total["ratio"])
            emit(
                case=case,
                **until_returned,
                **microseconds(times, "host"),
                **{f"total_{name}": value for name, value in total.items()},
                npu_total_us=round(times["npu"].total, 3),
            )
    if host_ratios:
        emit(
            case="geometric_mean",
            operators=len(host_ratios),
            ratio=round(geometric_mean(host_ratios), 3),
            total_ratio=round(geometric_mean(total_ratios), 3),
        )


if __name__ == "__main__":
    main()
