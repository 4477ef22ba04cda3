"""What one enqueue adds to a Python loop of `torch.add`, and an empty wait.

The loop runs on cpu tensors. Blocks with `submit_nothing()`, which queues a
task of 256 bytes, alternate with blocks that call an empty C function instead;
the difference of the medians is the queue's, with statistics on.
"""

from __future__ import annotations

import gc
import statistics

import click
import torch
from _harness import clock, emit, machine

from npu_dispatch import _C


def block(call, n: int) -> float:
    """Nanoseconds per round of `torch.add` and `call`."""
    a, b = torch.rand(8, 8), torch.rand(8, 8)
    add = torch.add
    rounds = range(n)
    began = clock()
    for _ in rounds:
        add(a, b)
        call()
    return (clock() - began) / n


def empty_wait(n: int) -> float:
    """Nanoseconds per `torch.npu.synchronize()` of an idle device."""
    wait = torch.npu.synchronize
    wait()
    rounds = range(n)
    began = clock()
    for _ in rounds:
        wait()
    return (clock() - began) / n


@click.command()
@click.option("--calls", default=2000, show_default=True, help="Calls in a block.")
@click.option("--repetitions", default=101, show_default=True)
def main(calls: int, repetitions: int) -> None:
    """Print a JSON line per case."""
    emit(bench="enqueue", calls=calls, repetitions=repetitions, **machine())
    torch.npu.init()
    gc.disable()
    differences = []
    for _ in range(repetitions):
        without = block(gc.isenabled, calls)
        with_task = block(_C.submit_nothing, calls)
        torch.npu.synchronize()
        differences.append(with_task - without)
    emit(case="enqueue_in_add_loop", added_ns=round(statistics.median(differences), 1))
    waits = [empty_wait(calls) for _ in range(repetitions)]
    emit(case="empty_synchronize", ns=round(statistics.median(waits), 1))


if __name__ == "__main__":
    main()
