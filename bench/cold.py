"""What a call costs that is the first of its kind, npu and cpu.

`first call at a shape`: a shape never seen, minus the same call later, until it
returns. Memory for it is there already: the largest shape comes first. The other
devices' first calls are measured too, because cpu's convolution and product look
for a kernel for each new shape as well.

`first call in a process`: of operators of PyTorch's OpInfo database, none of
which ran before, minus the same call later.
"""

from __future__ import annotations

import itertools
import random
import statistics
import warnings
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from _harness import Effort, Only, bench, emit, timed
from _peers import Call, Peer, Workers
from torch.utils._pytree import tree_map_only

Shape = tuple[int, int]
LATER = 3  # calls at a shape that are not the first
WIDTH = 64  # of what has weights


def make(device: str, op: str, shape: Shape) -> Call:
    """Return a call of the operator on tensors of about that shape."""
    n, m = shape

    def rand(*sizes: int) -> torch.Tensor:
        return torch.rand(sizes).to(device)

    x, y = rand(n, m), rand(n, m)
    match op:
        case "mm":
            right = rand(m, WIDTH)
            return lambda: torch.mm(x, right)
        case "linear":
            wide, weight, bias = rand(n, WIDTH), rand(8, WIDTH), rand(8)
            return lambda: F.linear(wide, weight, bias)
        case "layer_norm":
            weight, bias = rand(m), rand(m)
            return lambda: F.layer_norm(x, (m,), weight, bias)
        case "embedding":
            table, index = rand(100, 8), torch.randint(100, shape).to(device)
            return lambda: F.embedding(index, table)
        case "sdpa":
            q, k, v = (rand(1, 2, n, 16) for _ in range(3))
            return lambda: F.scaled_dot_product_attention(q, k, v)
        case "conv2d":
            image, kernel = rand(1, 3, n, m), rand(4, 3, 3, 3)
            return lambda: F.conv2d(image, kernel, padding=1)
    calls: dict[str, Call] = {
        "add": lambda: torch.add(x, y),
        "mul_": lambda: x.mul_(y),
        "softmax": lambda: torch.softmax(x, -1),
        "sum": lambda: x.sum(-1),
        "cat": lambda: torch.cat((x, y)),
        "gelu": lambda: F.gelu(x),
        "clone": lambda: x.clone(),
    }
    return calls[op]


OPERATORS = (
    *("add", "mul_", "mm", "softmax", "sum", "layer_norm", "cat", "linear"),
    *("embedding", "gelu", "clone", "sdpa", "conv2d"),
)


def shapes(count: int) -> Iterator[Shape]:
    """Yield the largest shape, then others, no two alike in either number."""
    draw = random.Random(0)
    yield 256, 256
    numbers = range(2, 250)
    yield from itertools.islice(
        zip(draw.sample(numbers, 248), draw.sample(numbers, 248), strict=True), count
    )


def first_and_later(peer: Peer, call: Call) -> tuple[float, float]:
    """Microseconds of the first call and of a later one, from an idle device."""

    def once() -> float:
        ns = timed(call)
        peer.wait()
        return ns / 1e3

    first = once()
    return first, statistics.median(once() for _ in range(LATER))


def at_new_shapes(peer: Peer, op: str, count: int) -> list[tuple[float, float]]:
    """Return the first and a later call, for `count` new shapes."""
    found = []
    for shape in shapes(count):
        call = make(peer.device, op, shape)
        peer.wait()
        found.append(first_and_later(peer, call))
    return found[1:]


def in_this_process(peer: Peer, count: int) -> list[tuple[float, float]]:
    """Return those of operators of the database, evenly spread over it."""
    warnings.simplefilter("ignore")  # of the database itself
    from torch.testing._internal.common_methods_invocations import op_db

    able = [
        info
        for info in op_db
        if torch.float32 in info.dtypes and not info.name.startswith("jiterator")
    ]
    found = []
    for info in able[:: max(1, len(able) // count)][:count]:
        sample = next(iter(info.sample_inputs("cpu", torch.float32)))
        values = (sample.input, sample.args, sample.kwargs)
        first, args, kwargs = tree_map_only(
            torch.Tensor, lambda tensor: tensor.detach().to(peer.device), values
        )
        if "device" in kwargs:
            kwargs["device"] = peer.device
        peer.wait()

        def call() -> object:
            return info.op(first, *args, **kwargs)  # noqa: B023 (called at once)

        found.append(first_and_later(peer, call))
    return found


def line_of(found: dict[str, list[tuple[float, float]]]) -> dict[str, float]:
    """Return each peer's first call minus its later one, and the later one."""
    line = {}
    for peer, pairs in found.items():
        added = statistics.median(first - later for first, later in pairs)
        line[f"{peer}_added_us"] = round(added, 2)
        later = statistics.median(later for _, later in pairs)
        line[f"{peer}_later_us"] = round(later, 2)
    return line


@bench(shapes=(60, 20, 1), operators=(120, 40, 3))
def main(shapes: int, operators: int, only: Only, effort: Effort) -> None:
    """Print a JSON line per operator, and one of the first calls in a process."""
    peers, added = ("cpu", "npu"), []
    with Workers(*peers, effort=effort) as workers:
        for op in filter(only, OPERATORS):
            asked = {
                peer: workers.ask(peer, at_new_shapes, op, shapes) for peer in peers
            }
            line = line_of(asked)
            added.append(line["npu_added_us"])
            emit(case=op, **line)
    if added:
        median = round(statistics.median(added), 2)
        emit(case="median_of_operators", npu_added_us=median, most_us=max(added))
    if only("opinfo"):
        # Processes in which nothing ran before.
        with Workers(*peers, effort=effort) as workers:
            asked = {
                peer: workers.ask(peer, in_this_process, operators) for peer in peers
            }
        emit(case="opinfo", operators=len(asked["npu"]), **line_of(asked))


if __name__ == "__main__":
    main()
