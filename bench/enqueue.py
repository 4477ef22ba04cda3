"""What one enqueue adds to a Python loop of `torch.add`, and an empty wait.

Loops over the same `torch.add` of cpu tensors alternate: with an empty C call, with
a task of 256 bytes for the queue, statistics on, and with a task that also carries
its Python line, as those of operators do. All of it while one thread alone has
claimed slots, and again, `after_a_second_thread`, once another one has.

`lookup_at_depth_N` and `launch_at_depth_N` are what finding the Python lines of a
launch adds N functions down: to a call that does nothing else, and to one that queues
a task of 256 bytes. It reads every frame, up to 32.

The caller is bound to one CPU, each in turn; the launcher has the others. A
block runs as often before it is timed, and each order of the loops comes as
often as the others: what ran before changes a block more than a task does.
"""

from __future__ import annotations

import gc
import itertools
import os
import statistics
import threading
from collections.abc import Iterator
from functools import partial

import click
import torch
from _harness import bench, clock, emit, in_turns, timed
from _peers import SETTLE_NS, Call

from npu_dispatch import _C

CALLS = {
    "nothing": gc.isenabled,
    "enqueue": _C.submit_nothing,
    "enqueue_with_site": _C.submit_with_site,
}

# Without and with the Python lines.
PAIRS = {
    "lookup": (_C.current_device, _C.current_call_site),
    "launch": (_C.submit_nothing, _C.submit_with_site),
}
DEPTHS = (1, 4, 16, 32, 64)

a, b = torch.rand(8, 8), torch.rand(8, 8)  # where they lie changes a round, too


def block(call: Call, n: int) -> float:
    """Nanoseconds per round of `torch.add` and `call`."""
    add = torch.add
    rounds = range(n)
    for _ in range(2):
        began = clock()
        for _ in rounds:
            add(a, b)
            call()
    return (clock() - began) / n


def settle(calls: int) -> None:
    """Let the scheduler find the launcher's place beside the caller's."""
    until = clock() + SETTLE_NS
    while clock() < until:
        block(_C.submit_nothing, calls)
        torch.npu.synchronize()


def repetitions_on(cpu: int, calls: int, n: int) -> Iterator[dict[str, float]]:
    """Measure `n` times with the caller bound to `cpu`.

    Yields the nanoseconds that a round took more than with an empty call, by loop.
    """
    os.sched_setaffinity(0, {cpu})
    settle(calls)
    orders = itertools.cycle(itertools.permutations(CALLS))  # 6
    for order in itertools.islice(orders, n):
        times = {}
        for name in order:
            times[name] = block(CALLS[name], calls)
            torch.npu.synchronize()
        yield {name: times[name] - times["nothing"] for name in CALLS}


def measure(producers: str, calls: int, repetitions: int) -> None:
    """Print a line per kind of task; `producers` ends the cases' names."""
    cpus = sorted(os.sched_getaffinity(0))
    measured: list[dict[str, float]] = []
    for cpu in cpus:
        measured += repetitions_on(cpu, calls, repetitions // len(cpus) or 1)
    os.sched_setaffinity(0, cpus)
    for name in ("enqueue", "enqueue_with_site"):
        added = statistics.median(times[name] for times in measured)
        emit(case=name + producers, added_ns=round(added, 1))


def at_depth(call: Call, n: int, depth: int) -> float:
    """Nanoseconds per call, from `depth` functions further down."""
    if depth > 1:
        return at_depth(call, n, depth - 1)
    timed(call, n)  # fills caches
    ns = timed(call, n)
    torch.npu.synchronize()
    return ns


@bench(calls=(300, 300, 2), repetitions=(400, 192, 2))
def main(calls: int, repetitions: int) -> None:
    """Print a JSON line per case."""
    if len(os.sched_getaffinity(0)) < 2:
        raise click.ClickException("needs two CPUs, one for the launcher")
    _C.submit_nothing()  # the launcher starts free to go anywhere
    torch.npu.synchronize()
    gc.disable()
    for (name, pair), depth in itertools.product(PAIRS.items(), DEPTHS):
        blocks = {call: partial(at_depth, call, calls, depth) for call in pair}
        without, with_lines = in_turns(blocks, repetitions // 2).values()
        added = (b - a for a, b in zip(without, with_lines, strict=True))
        ns = round(statistics.median(added), 1)
        emit(case=f"{name}_at_depth_{depth}", added_ns=ns)
    measure("", calls, repetitions)
    second = threading.Thread(target=_C.submit_nothing)
    second.start()
    second.join()
    measure("_after_a_second_thread", calls, repetitions)
    torch.npu.synchronize()
    waits = [timed(torch.npu.synchronize, 5 * calls) for _ in range(101)]
    emit(
        case="empty_synchronize",
        ns=round(statistics.median(waits), 1),
    )


if __name__ == "__main__":
    main()
