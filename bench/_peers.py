"""Who is compared, each in a process of its own, in blocks that take turns.

In one process the devices would disturb each other: torch keeps OpenMP workers
per calling thread, and those of the launcher make the OpenMP library slow down
those of the caller. A process measures all cases of a file, one after the other.
"""

from __future__ import annotations

import gc
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from time import process_time, sleep
from typing import Any, TypeVar

import torch
from _harness import Effort, clock, emit, in_turns
from _processes import start

Function = TypeVar("Function", bound=Callable[..., object])
Answer = TypeVar("Answer")

ANY_CPU = -1
# Blocks that are made and not counted.
WARM_UPS = 3
# A process rests once it uses less than a tenth of its CPUs for so long, of which the
# system knows to some milliseconds. It is waited for at most so often.
REST_S, MOST_RESTS = 0.01, 50
# How long a process runs on a CPU before it is timed there: the scheduler's
# time to spread its threads.
SETTLE_NS = 20_000_000


@dataclass(frozen=True, slots=True)
class Peer:
    """A device, and how a user would run it."""

    name: str
    device: str
    threads: int | None = None  # torch's default
    backend: str | None = None  # eager

    def compiled(self, function: Function, **options: Any) -> Function:
        """Return the function, by torch.compile where this peer is compiled."""
        if self.backend is None:
            return function
        return torch.compile(function, backend=self.backend, **options)

    def wait(self) -> None:
        """Return once the device is idle."""
        if self.device == "npu":
            torch.npu.synchronize()


NPU = Peer("npu", "npu")
CPU = Peer("cpu", "cpu")
WHOLE_STEP, REDUCED = "npu_whole_step", "npu_reduce_overhead"
BY_NAME = {
    peer.name: peer
    for peer in (
        NPU,
        CPU,
        Peer("cpu_one_thread", "cpu", threads=1),
        Peer("cpu_compiled", "cpu", backend="inductor"),
        Peer("npu_compiled", "npu", backend="inductor"),
        Peer(REDUCED, "npu", backend="inductor"),
        Peer(WHOLE_STEP, "npu"),
    )
}

Call = Callable[[], object]
Make = Callable[[Peer, str], Call]


@dataclass(frozen=True, slots=True)
class Times:
    """Microseconds per call: until it returned, and until it was retired."""

    host: float
    total: float
    kept: int = 1  # blocks that these are the medians of
    warm_ups: int = 0  # blocks before them, which are not counted


def timed_block(call: Call, n: int, peer: Peer = NPU) -> Times:
    """Make `n` calls from an idle device; `n` must fit into the queue."""
    peer.wait()
    rounds = range(n)
    began = clock()
    for _ in rounds:
        call()
    returned = clock()
    peer.wait()
    retired = clock()
    return Times((returned - began) / n / 1e3, (retired - began) / n / 1e3)


def switched(
    step: Call, n: int, on: Callable[[], AbstractContextManager[object]], repeats: int
) -> dict[str, float]:
    """Return what `n` steps take without and within `on`, in blocks that take turns."""

    def block(context: Callable[[], AbstractContextManager[object]]) -> float:
        gc.collect()
        with context():
            timed_block(step, 2)  # a stream notices with its next tasks
            return timed_block(step, n).total

    blocks = {"off": partial(block, nullcontext), "on": partial(block, on)}
    times = in_turns(blocks, repeats, WARM_UPS)
    ratios = (b / a for a, b in zip(times["off"], times["on"], strict=True))
    return {
        **{f"{name}_us": round(statistics.median(us), 1) for name, us in times.items()},
        "ratio": round(statistics.median(ratios), 3),
        "kept": repeats,
        "warm_ups": WARM_UPS,
    }


class Workers:
    """A process for each peer; they are asked in turn.

    compare() times the calls that `make` makes, or asks `time`.
    """

    def __init__(
        self,
        *names: str,
        effort: Effort,
        make: Make | None = None,
        time: Callable[[Peer, str, int, int], Times] | None = None,
    ) -> None:
        self._smoke = effort is Effort.SMOKE
        self._time = time or partial(timed_case, make)
        self._processes = {}
        for name in names:
            peer = BY_NAME[name]
            if self._smoke and peer.backend:
                # The same path without the minutes that a C++ compiler takes.
                peer = replace(peer, backend="eager")
            self._processes[name] = start(effort, _answer, peer)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for process, connection in self._processes.values():
            with suppress(OSError):  # it has failed
                connection.send(None)
            process.join()

    def ask(
        self, peer: str, question: Callable[..., Answer], *arguments: Any
    ) -> Answer:
        """Return what a function of the peer, and of the arguments, returns in its
        process, while all others are idle."""
        _, connection = self._processes[peer]
        connection.send((question, arguments))
        try:
            return connection.recv()
        except EOFError:
            sys.exit(f"{peer}: {question} {arguments} failed")

    def time(self, peer: str, case: str, n: int, cpu: int = ANY_CPU) -> Times:
        return self.ask(peer, self._time, case, n, cpu)

    def compare(
        self,
        case: str,
        n: int,
        repetitions: int,
        *,
        peers: Sequence[str] = (),
        same_cpu: bool = False,
    ) -> dict[str, Times]:
        """Return the medians of each peer, all of them by default; blocks of `n`
        calls take turns, each repetition in another order.

        With `same_cpu` the calling threads start on the same CPU, another one in
        each repetition: CPUs of a shared machine differ in speed by up to twice,
        and the scheduler leaves each process where it is. A smoke run makes one
        call per peer.
        """
        warm_ups = WARM_UPS
        if self._smoke:
            n, warm_ups, repetitions, same_cpu = 1, 0, 1, False
        order = list(peers or self._processes)
        blocks: dict[str, list[Times]] = {peer: [] for peer in order}
        for peer in order:  # warm up: caches, threads, pools, compilers
            for _ in range(warm_ups):
                self.time(peer, case, n)
        cpus = sorted(os.sched_getaffinity(0)) if same_cpu else [ANY_CPU]
        for repetition in range(repetitions):
            cpu = cpus[repetition % len(cpus)]
            for peer in order:
                blocks[peer].append(self.time(peer, case, n, cpu))
            if cpu == cpus[-1]:
                order.reverse()
        return {
            peer: Times(
                statistics.median(block.host for block in times),
                statistics.median(block.total for block in times),
                len(times),
                warm_ups,
            )
            for peer, times in blocks.items()
        }

    def report(
        self,
        case: str,
        n: int,
        repetitions: int,
        ratios: Callable[[dict[str, Times]], dict[str, float]] | None = None,
        *,
        more: dict[str, Any] | None = None,
        **how: Any,
    ) -> dict[str, float]:
        """Compare as compare() does, print the case's line, and return its ratios."""
        times = self.compare(case, n, repetitions, **how)
        found = (ratios or against_npu)(times)
        host = round(times["npu"].host, 2)
        shown = found | microseconds(times) | {"npu_host_us": host}
        emit(case=case, **shown, **(more or {}))
        return found


def move_to(cpu: int) -> None:
    """Put the calling thread on a CPU, without binding it there."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    os.sched_setaffinity(0, allowed)


_current: tuple[str, Call] | None = None  # of a worker's process


def timed_case(make: Make, peer: Peer, case: str, n: int, cpu: int) -> Times:
    """Return the times of a block of the call that `make` returns."""
    global _current
    if _current is None or _current[0] != case:
        _current = None  # the case before goes first
        gc.collect()
        _current = case, make(peer, case)
    call = _current[1]
    if cpu != ANY_CPU:
        move_to(cpu)
        settle = clock() + SETTLE_NS
        while clock() < settle:
            timed_block(call, n, peer)
    return timed_block(call, n, peer)


def rest() -> None:
    """Return once no thread of this process runs any more: those of an OpenMP team
    spin on for some ten milliseconds, on a core that the next process wants."""
    for _ in range(MOST_RESTS):
        used = process_time()
        sleep(REST_S)
        if process_time() - used < REST_S / 10:
            break


def _answer(connection: Connection, peer: Peer) -> None:
    """In a worker's process: answer until told to stop."""
    if peer.threads:
        torch.set_num_threads(peer.threads)
    while asked := connection.recv():
        question, arguments = asked
        answer = question(peer, *arguments)
        rest()
        connection.send(answer)


def against_npu(times: dict[str, Times], what: str = "total") -> dict[str, float]:
    """Return npu's time over each other peer's: `ratio` for cpu."""
    npu = getattr(times["npu"], what)
    return {
        "ratio" if peer == "cpu" else f"ratio_to_{peer}": round(
            npu / getattr(found, what), 3
        )
        for peer, found in times.items()
        if peer != "npu"
    }


def microseconds(times: dict[str, Times], what: str = "total") -> dict[str, float]:
    """Return the time of each peer, by the name of its field, and how many blocks
    it is the median of; `warm_ups` more came before them."""
    shown: dict[str, float] = {
        f"{peer}_us": round(getattr(found, what), 2) for peer, found in times.items()
    }
    one = times["npu"]
    return shown | {"kept": one.kept, "warm_ups": one.warm_ups}
