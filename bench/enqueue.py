"""What one enqueue adds to a Python loop of `torch.add`, and an empty wait.

Three loops over the same `torch.add` of cpu tensors alternate: with an empty C
call, with a copy of 256 bytes into a buffer as large as a ring (the floor), and
with a task of 256 bytes for the queue, statistics on. The caller is bound to
one CPU, each in turn; the launcher has the others. A block runs as often before
it is timed, and each order of the three loops comes as often as the others:
what ran before changes a block more than a task does. A repetition counts if
the two CPUs were near each other before and after it.
"""

from __future__ import annotations

import gc
import itertools
import os
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

import click
import torch
from _harness import SETTLE_NS, clock, emit, machine

from npu_dispatch import _C

CALLS = {
    "nothing": gc.isenabled,
    "copy": _C.copy_nothing,
    "enqueue": _C.submit_nothing,
}


a, b = torch.rand(8, 8), torch.rand(8, 8)  # where they lie changes a round, too


@dataclass(frozen=True, slots=True)
class Repetition:
    """Nanoseconds that a round took more than with an empty call."""

    near: bool
    copy: float
    enqueue: float


def block(call, n: int) -> float:
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


def empty_wait(n: int) -> float:
    """Nanoseconds per `torch.npu.synchronize()` of an idle device."""
    wait = torch.npu.synchronize
    wait()
    rounds = range(n)
    began = clock()
    for _ in rounds:
        wait()
    return (clock() - began) / n


def repetitions_on(cpu: int, other: int, calls: int, n: int) -> Iterator[Repetition]:
    """Measure `n` times with the caller bound to `cpu`."""
    os.sched_setaffinity(0, {cpu})
    settle(calls)
    orders = itertools.cycle(itertools.permutations(CALLS))
    before = _C.is_near(other)
    for order in itertools.islice(orders, n):
        times = {}
        for name in order:
            times[name] = block(CALLS[name], calls)
            torch.npu.synchronize()
        after = _C.is_near(other)
        yield Repetition(
            near=before and after,
            copy=times["copy"] - times["nothing"],
            enqueue=times["enqueue"] - times["nothing"],
        )
        before = after


@click.command()
@click.option("--calls", default=300, show_default=True, help="Calls in a block.")
@click.option("--repetitions", default=400, show_default=True)
def main(calls: int, repetitions: int) -> None:
    """Print a JSON line per case."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise click.ClickException("needs two CPUs, one for the launcher")
    emit(bench="enqueue", calls=calls, repetitions=repetitions, **machine())
    _C.submit_nothing()  # the launcher starts free to go anywhere
    torch.npu.synchronize()
    gc.disable()
    measured: list[Repetition] = []
    for cpu, other in zip(cpus, cpus[1:] + cpus[:1], strict=True):
        measured += repetitions_on(cpu, other, calls, repetitions // len(cpus))
    os.sched_setaffinity(0, cpus)
    near = [r for r in measured if r.near]
    counted = near or measured
    copy = statistics.median(r.copy for r in counted)
    enqueue = statistics.median(r.enqueue for r in counted)
    emit(
        case="enqueue_in_add_loop",
        copy_ns=round(copy, 1),
        added_ns=round(enqueue, 1),
        ratio=round(enqueue / copy, 2),
        near=len(near),
    )
    waits = [empty_wait(2000) for _ in range(101)]
    emit(case="empty_synchronize", ns=round(statistics.median(waits), 1))


if __name__ == "__main__":
    main()
