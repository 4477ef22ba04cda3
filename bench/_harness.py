"""How a benchmark compares npu with cpu: interleaved blocks, medians, JSON lines.

Each device is measured in a process of its own. In one process the two would
disturb each other: torch keeps OpenMP workers per calling thread, and those of
the launcher make the OpenMP library slow down those of the caller.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

import torch

import npu_dispatch  # noqa: F401 (a no-op where torch has loaded it)

clock = time.perf_counter_ns
WORKER = "--worker"
ANY_CPU = -1
# How long a process runs on a CPU before it is timed there: the scheduler's
# time to spread its threads.
SETTLE_NS = 20_000_000


@dataclass(frozen=True, slots=True)
class Times:
    """Microseconds per call: until it returned, and until it was retired."""

    host: float
    total: float


def timed_block(call: Callable[[], object], n: int, device: str) -> Times:
    """Make `n` calls from an idle device; `n` must fit into the queue."""
    wait = torch.npu.synchronize if device == "npu" else lambda: None
    wait()
    rounds = range(n)
    began = clock()
    for _ in rounds:
        call()
    returned = clock()
    wait()
    retired = clock()
    return Times((returned - began) / n / 1e3, (retired - began) / n / 1e3)


class Worker:
    """A process of the running script that times blocks of one case."""

    def __init__(self, device: str, case: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, sys.argv[0], WORKER, device, case],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def time(self, n: int, cpu: int = ANY_CPU) -> Times:
        """Run a block of `n` calls there, while everybody else is idle.

        The calling thread starts on `cpu`; nothing is bound to one.
        """
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(f"{n} {cpu}\n")
        self._process.stdin.flush()
        return Times(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.communicate()


def move_to(cpu: int) -> None:
    """Put the calling thread on a CPU, without binding it there."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    os.sched_setaffinity(0, allowed)


def serve_if_worker(make: Callable[[str, str], Callable[[], object]]) -> None:
    """In a worker process: time blocks until told to stop, then exit.

    `make(device, case)` returns the call to time.
    """
    if len(sys.argv) != 4 or sys.argv[1] != WORKER:
        return
    device, case = sys.argv[2:]
    call = make(device, case)
    for line in sys.stdin:
        n, cpu = map(int, line.split())
        if cpu != ANY_CPU:
            move_to(cpu)
            settle = clock() + SETTLE_NS
            while clock() < settle:
                timed_block(call, n, device)
        emit(**asdict(timed_block(call, n, device)))
    sys.exit(0)


def compare(
    case: str, n: int, repetitions: int, *, same_cpu: bool = False
) -> dict[str, Times]:
    """Return each device's medians; its blocks alternate with the other's.

    With `same_cpu` the two calling threads start on the same CPU, another one in
    each repetition: CPUs of a shared machine differ in speed by up to twice,
    and the scheduler leaves each process where it is.
    """
    workers = {device: Worker(device, case) for device in ("cpu", "npu")}
    blocks: dict[str, list[Times]] = {device: [] for device in workers}
    for worker in workers.values():  # warm up: caches, threads, pools
        worker.time(n)
        worker.time(n)
    cpus = sorted(os.sched_getaffinity(0)) if same_cpu else [ANY_CPU]
    for repetition in range(repetitions):
        cpu = cpus[repetition % len(cpus)]
        order = list(workers.items())
        if repetition // len(cpus) % 2:
            order.reverse()
        for device, worker in order:
            blocks[device].append(worker.time(n, cpu))
    for worker in workers.values():
        worker.close()
    return {
        device: Times(
            statistics.median(block.host for block in times),
            statistics.median(block.total for block in times),
        )
        for device, times in blocks.items()
    }


def emit(**fields: object) -> None:
    """Print one JSON line."""
    print(json.dumps(fields), flush=True)


def geometric_mean(ratios: Iterable[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, ratios)))


def machine() -> dict[str, object]:
    """Return what a figure depends on."""
    model = "unknown"
    with open("/proc/cpuinfo") as lines:  # noqa: PTH123
        for line in lines:
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
