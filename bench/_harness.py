"""How a benchmark compares npu with cpu: interleaved blocks, medians, JSON lines."""

from __future__ import annotations

import json
import math
import os
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

import npu_dispatch  # noqa: F401 (a no-op where torch has loaded it)

clock = time.perf_counter_ns


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


def compare(
    calls: dict[str, Callable[[], object]], n: int, repetitions: int
) -> dict[str, Times]:
    """Return each device's medians; its blocks alternate with the other's."""
    blocks: dict[str, list[Times]] = {device: [] for device in calls}
    for device, call in calls.items():  # warm up: caches, threads, pools
        timed_block(call, n, device)
    for repetition in range(repetitions):
        order = list(calls.items())
        for device, call in order if repetition % 2 else reversed(order):
            blocks[device].append(timed_block(call, n, device))
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
