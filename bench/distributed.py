"""What collectives between two processes cost: hccl on npu, gloo on cpu.

Both are asked in turn by the same two processes, one thread each, joined over
the loopback. A collective's time is the host's until its result is there.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from _harness import Effort, at_least, at_most, bench, clock, emit
from _processes import end, start
from torch import nn

from npu_dispatch import _C

SIZES = {"1": 1, "1KB": 256, "1MB": 1 << 18, "64MB": 1 << 24}
SHARED = 1 << 23  # elements of reduce_scatter and all_gather: 32 MB
# npu over gloo: at most, for times of latency; else at least, of bandwidth.
GOALS = {
    "all_reduce_1": ("time", 1.0),
    "all_reduce_1MB": ("speed", 0.95),
    "all_reduce_64MB": ("speed", 0.95),
    "reduce_scatter_32MB": ("speed", 2.5),
    "all_gather_32MB": ("speed", 2.5),
    "ddp_1.5MB": ("time", 0.85),
    "ddp_32MB": ("time", 0.95),
}


def collective(name: str, device: str) -> Callable[[], object]:
    call, _, size = name.rpartition("_")
    if call == "ddp":
        return ddp_step(size, device)
    if call == "all_reduce":
        t = torch.zeros(SIZES[size], device=device)
        return lambda: dist.all_reduce(t)
    whole = torch.zeros(SHARED, device=device)
    half = torch.zeros(SHARED // 2, device=device)
    if call == "reduce_scatter":
        return lambda: dist.reduce_scatter_tensor(half, whole)
    return lambda: dist.all_gather_into_tensor(whole, half)


def ddp_step(size: str, device: str) -> Callable[[], object]:
    torch.manual_seed(0)
    width = 350 if size == "1.5MB" else 1650
    model = nn.Sequential(
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, width),
    )
    ddp = nn.parallel.DistributedDataParallel(model.to(device))
    optimizer = torch.optim.SGD(ddp.parameters(), 0.01)
    x = torch.randn(64, width).to(device)

    def step() -> None:
        ddp(x).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def rank_main(rank: int, store: str, repetitions: int, only: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "cpu:gloo,npu:hccl", init_method=f"file://{store}", rank=rank, world_size=2
    )
    cases = [f"all_reduce_{s}" for s in SIZES]
    cases += [*list(GOALS)[3:]]
    for case in cases:
        if only not in case:
            continue
        calls = {d: collective(case, d) for d in ("npu", "cpu")}
        times: dict[str, list[float]] = {"npu": [], "cpu": []}
        n = 1 if "32MB" in case or "64MB" in case else 10
        for repetition in range(repetitions + 1):
            for device, call in calls.items():
                dist.barrier()
                torch.npu.synchronize()
                began = clock()
                for _ in range(n):
                    call()
                    torch.npu.synchronize()
                if repetition:
                    times[device].append((clock() - began) / n)
        if rank == 0:
            print(json.dumps([case, times]), flush=True)
    t = torch.zeros(1).npu()
    launches: dict[str, list[float]] = {"launch": [], "submit": []}
    stream = torch.npu.Stream()
    for _ in range(repetitions):
        began = clock()
        works = [dist.all_reduce(t, async_op=True) for _ in range(50)]
        launches["launch"].append((clock() - began) / 50)
        works[-1].wait()
        torch.npu.synchronize()
        began = clock()
        for _ in range(50):
            stream.submit(lambda view: None, t)
        launches["submit"].append((clock() - began) / 50)
        torch.npu.synchronize()
    if rank == 0:
        print(json.dumps(["launch", launches]), flush=True)
        costs = [_C.collective_log_cost(1000) for _ in range(repetitions)]
        print(json.dumps(["flight_recorder", {"ns": costs}]), flush=True)
    dist.barrier()
    dist.destroy_process_group()


@bench(repetitions=(31, 11, 1))
def main(repetitions: int, only: str, effort: Effort) -> None:
    """Print a JSON line per case; `ratio` is npu's time over gloo's on cpu."""
    folder = tempfile.mkdtemp()
    argv = [str(Path(folder) / "store"), str(repetitions), only]
    ranks = [start(effort, "--rank", str(r), *argv) for r in range(2)]
    outputs = [r.stdout.read() for r in ranks]
    all_well = end(*ranks)
    # Not by leaving a context: a forked rank would leave it, too.
    shutil.rmtree(folder)
    if not all_well:
        raise SystemExit("a rank failed")
    for line in outputs[0].splitlines():
        case, times = json.loads(line)
        middle = {k: statistics.median(v) for k, v in times.items()}
        if case == "launch":
            over = round((middle["launch"] - middle["submit"]) / 1e3, 1)
            emit(
                case="launch",
                us=round(middle["launch"] / 1e3, 1),
                over_submit_us=over,
                goals={"over_submit_us": at_most(5)},
            )
            continue
        if case == "flight_recorder":
            emit(
                case=case,
                us=round(middle["ns"] / 1e3, 3),
                goals={"us": at_most(1.0)},
            )
            continue
        ratio = round(middle["npu"] / middle["cpu"], 2)
        kind, bound = GOALS.get(case, ("", 0.0))
        emit(
            case=case,
            npu_ms=round(middle["npu"] / 1e6, 3),
            cpu_gloo_ms=round(middle["cpu"] / 1e6, 3),
            ratio=ratio,
            speed=round(1 / ratio, 2),
            goals={"ratio": at_most(bound)}
            if kind == "time"
            else {"speed": at_least(bound)}
            if kind
            else None,
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        rank_main(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5])
    else:
        main()
