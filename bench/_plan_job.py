"""A job of two ranks, as it is planned and as it is: for bench/plan.py.

Both ranks have an emulated device, whose times are stated, so that what is compared is
the order of work and messages, and the messages' times. As a script it is a rank: the
microseconds of an all_reduce by bytes (`link`), or of a data-parallel step (`train`).
Gradients are summed by hand, since DDP compares values, of which an emulated device
has none.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

from npu_dispatch.plan import topology
from npu_dispatch.plan.record import record
from npu_dispatch.plan.spec import load
from npu_dispatch.plan.study import Network

_SMALL, _LARGE = 4096, 1 << 22  # bytes that are summed
_RANKS, _CALLS = 2, 10
_SPEC = """
name = "stated"
source = "bench/plan.py"
date = "2026-11"
[memory]
gib = 4
gb_per_s = 100
[tflops]
fp64 = 0.05
fp32 = 0.5
fp16 = 0.5
int8 = 0.5
[link]
gb_per_s = 10
[latency_us]
launch = 5
kernel = 5
complete = 5
"""
_TOPOLOGY = """
name = "these processes"
source = "bench/plan.py"
date = "2026-11"
per_host = 2
[inside]
alpha_us = {alpha}
gb_per_s = {rate}
"""


def _job(kind: str, spec: Path) -> list[float]:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *("--nproc-per-node", str(_RANKS), __file__, kind),
        ],
        env={**os.environ, "NPU_DRIVER": "emulated", "NPU_EMULATED_SPEC": str(spec)},
        capture_output=True,
        text=True,
        check=True,
    )
    return [float(word) for word in done.stdout.split()]


def real_and_planned_us() -> tuple[float, float]:
    """Return the time of a step of the job, and what is planned with its link."""
    with tempfile.TemporaryDirectory() as name:
        spec, links = Path(name) / "spec.toml", Path(name) / "links.toml"
        spec.write_text(_SPEC)
        small, large = _job("link", spec)
        [real] = _job("train", spec)
        # Of two ranks it takes two messages of half the bytes.
        us_per_byte = (large - small) / (_LARGE - _SMALL)
        alpha = max(small - _SMALL * us_per_byte, 0.0) / 2
        links.write_text(_TOPOLOGY.format(alpha=alpha, rate=1e-3 / us_per_byte))
        network = Network(topology.load(str(links)), _RANKS)
        [found] = record([__file__, "train"], [load(str(spec))], network=network)
        return real, found.report.step_us


def _median_us(call: Callable[[], None], warm_ups: int, count: int) -> float:
    times = []
    for _ in range(warm_ups + count):
        begun = time.perf_counter()
        call()
        torch.npu.synchronize()
        times.append((time.perf_counter() - begun) * 1e6)
    return statistics.median(times[warm_ups:])


def _all_reduce_us(size: int) -> float:
    # Each call has a tensor of its own, as gradients are: caches hold none of them.
    tensors = [torch.ones(size // 4, device="npu") for _ in range(_CALLS)]

    def call() -> None:
        for x in tensors:
            dist.all_reduce(x)

    return _median_us(call, 0, 15) / _CALLS


def _step_us() -> float:
    layers = [torch.nn.Linear(1024, 1024) for _ in range(6)]
    model = torch.nn.Sequential(*layers).npu()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    x = torch.ones(256, 1024, device="npu")

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()

    return _median_us(step, 10, 30)


if __name__ == "__main__":
    dist.init_process_group("hccl")
    is_link = sys.argv[1] == "link"
    found = [*map(_all_reduce_us, (_SMALL, _LARGE))] if is_link else [_step_us()]
    if dist.get_rank() == 0:
        print(*found)
    dist.destroy_process_group()
