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
from typing import Any

import torch
import torch.nn.functional as F
from _harness import Effort, bench, emit, timed
from _peers import Call, Peer, Workers, serve_if_worker

Shape = tuple[int, int]
LATER = 3  # calls at a shape that are not the first
WIDTH = 64  # of what has weights


def make(device: str, op: str, shape: Shape) -> Call:
    """Return a call of the operator on tensors of about that shape."""
    n, m = shape
    x, y = torch.rand(n, m).to(device), torch.rand(n, m).to(device)
    wide = torch.rand(n, WIDTH).to(device)
    if op == "mm":
        right = torch.rand(m, WIDTH).to(device)
        return lambda: torch.mm(x, right)
    if op == "linear":
        weight, bias = torch.rand(8, WIDTH).to(device), torch.rand(8).to(device)
        return lambda: F.linear(wide, weight, bias)
    if op == "layer_norm":
        weight, bias = torch.rand(m).to(device), torch.rand(m).to(device)
        return lambda: F.layer_norm(x, (m,), weight, bias)
    if op == "embedding":
        table = torch.rand(100, 8).to(device)
        index = torch.randint(100, shape).to(device)
        return lambda: F.embedding(index, table)
    if op == "sdpa":
        q, k, v = (torch.rand(1, 2, n, 16).to(device) for _ in range(3))
        return lambda: F.scaled_dot_product_attention(q, k, v)
    if op == "conv2d":
        image = torch.rand(1, 3, n, m).to(device)
        kernel = torch.rand(4, 3, 3, 3).to(device)
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
        if peer.device == "npu":
            torch.npu.synchronize()
        return ns / 1e3

    first = once()
    return first, statistics.median(once() for _ in range(LATER))


def at_new_shapes(peer: Peer, op: str, count: int) -> list[tuple[float, float]]:
    """The answer to "shapes": first and later call, for `count` new shapes."""
    found = []
    for shape in shapes(count):
        call = make(peer.device, op, shape)
        if peer.device == "npu":
            torch.npu.synchronize()
        found.append(first_and_later(peer, call))
    return found[1:]


def moved(value: Any, device: str) -> Any:
    """Return an argument with its tensors on the device."""
    if isinstance(value, torch.Tensor):
        return value.detach().to(device)
    if isinstance(value, (list, tuple)):
        return type(value)(moved(item, device) for item in value)
    if isinstance(value, dict):
        return {
            key: device if key == "device" else moved(item, device)
            for key, item in value.items()
        }
    return value


def in_this_process(peer: Peer, count: int) -> list[tuple[str, float, float]]:
    """The answer to "opinfo": operators of the database, evenly spread over it."""
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
        first, args, kwargs = (moved(value, peer.device) for value in values)
        if peer.device == "npu":
            torch.npu.synchronize()

        def call() -> object:
            return info.op(first, *args, **kwargs)  # noqa: B023 (called at once)

        found.append((info.name, *first_and_later(peer, call)))
    return found


@bench(shapes=(60, 20, 1), operators=(120, 40, 3))
def main(shapes: int, operators: int, only: str, effort: Effort) -> None:
    """Print a JSON line per operator, and one of the first calls in a process."""
    medians = []
    with Workers("npu", "cpu", effort=effort) as workers:
        for op in OPERATORS:
            if only not in op:
                continue
            line = {}
            for peer in ("cpu", "npu"):
                found = workers.ask(peer, "shapes", op, shapes)
                added = [first - later for first, later in found]
                later = statistics.median(later for _, later in found)
                line[f"{peer}_added_us"] = round(statistics.median(added), 2)
                line[f"{peer}_later_us"] = round(later, 2)
            medians.append(line["npu_added_us"])
            emit(case=op, **line)
        if medians:
            median = round(statistics.median(medians), 2)
            emit(
                case="median_of_operators",
                npu_added_us=median,
                most_us=max(medians),
            )
    if only not in "opinfo":
        return
    # Processes in which nothing ran before.
    with Workers("npu", "cpu", effort=effort) as workers:
        line = {}
        for peer in ("cpu", "npu"):
            found = workers.ask(peer, "opinfo", operators)
            added = [first - later for _, first, later in found]
            line[f"{peer}_added_us"] = round(statistics.median(added), 1)
        worst = max(found, key=lambda each: each[1] - each[2])
        emit(
            case="opinfo",
            operators=len(found),
            **line,
            costliest=worst[0],
            dearest_us=round(worst[1] - worst[2]),
        )


if __name__ == "__main__":
    serve_if_worker(shapes=at_new_shapes, opinfo=in_this_process)
    main()
