"""What a rank of bench/distributed.py measures. As a script it prints the times."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist
from _harness import clock, in_turns, timed
from _peers import CPU, NPU, Call
from models import perceptron
from torch.nn.parallel import DistributedDataParallel
from training import ADAMW, KINDS, captured, of_gpt, text

from npu_dispatch import _C

PEERS = {peer.name: peer for peer in (NPU, CPU)}
SIZES = {"1": 1, "1KB": 256, "1MB": 1 << 18, "64MB": 1 << 24}
SHARED = 1 << 23  # elements of reduce_scatter and all_gather: 32 MB
MLP_WIDTHS = {"1.5MB": 350, "32MB": 1650}
CALLS = 50  # that are launched without a wait between them


def collective(name: str, device: str) -> Call:
    call, _, size = name.rpartition("_")
    if call == "all_reduce":
        t = torch.zeros(SIZES[size], device=device)
        return lambda: dist.all_reduce(t)
    whole = torch.zeros(SHARED, device=device)
    half = torch.zeros(SHARED // 2, device=device)
    if call == "reduce_scatter":
        return lambda: dist.reduce_scatter_tensor(half, whole)
    return lambda: dist.all_gather_into_tensor(whole, half)


def ddp_step(size: str, device: str) -> Call:
    torch.manual_seed(0)
    width = MLP_WIDTHS[size]
    ddp = DistributedDataParallel(perceptron(*[width] * 4).to(device))
    x = torch.randn(64, width).to(device)
    # The same kind of kernels on both devices.
    optimizer = torch.optim.SGD(ddp.parameters(), 0.01, **KINDS["foreach"])

    def step() -> None:
        ddp(x).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def ddp_gpt(size: str, device: str) -> Call:
    """A step of the GPT of examples/gpt.py, AdamW with fused kernels."""
    torch.manual_seed(0)
    ddp = DistributedDataParallel(of_gpt(size).to(device))
    batch = tuple(tensor.to(device) for tensor in text(size))
    optimizer = ADAMW(ddp.parameters(), **KINDS["fused"])

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)  # as in a graph
        ddp(*batch).backward()
        optimizer.step()

    return step


def replayed(size: str) -> Call:
    """Return the replay of such a step on npu, collectives included."""
    stream = torch.npu.Stream()
    with torch.npu.stream(stream):  # which DDP is made and warmed up on, too
        step = ddp_gpt(size, "npu")
    return captured(step, stream, warm_ups=11)  # DDP looks at its first ten steps


def made(case: str, device: str) -> Call:
    if case.startswith("ddp_gpt"):
        _, _, size, *how = case.split("_")
        is_replayed = how == ["captured"] and device == "npu"
        return replayed(size) if is_replayed else ddp_gpt(size, device)
    if case.startswith("ddp_"):
        return ddp_step(case.removeprefix("ddp_"), device)
    return collective(case, device)


def times_of(calls: dict[str, Call], repetitions: int, n: int = 1) -> dict[str, Any]:
    """Return the nanoseconds of each call until its result is there, by name."""

    def block(call: Call) -> float:
        dist.barrier()
        torch.npu.synchronize()
        began = clock()
        for _ in range(n):
            call()
            torch.npu.synchronize()
        return (clock() - began) / n

    blocks = {name: partial(block, call) for name, call in calls.items()}
    return in_turns(blocks, repetitions, 1)


def measure(case: str, repetitions: int) -> dict[str, Any]:
    n = 1 if case.endswith(("32MB", "64MB")) else 10
    calls = {name: made(case, peer.device) for name, peer in PEERS.items()}
    return times_of(calls, repetitions, n)


def hidden(device: str, repetitions: int) -> dict[str, Any]:
    """Return what a step takes, and what its two parts take by themselves.

    The optimizer is no part of it: it waits for the one and the other. Forward
    cannot overlap, so two thirds of the computation are the most that is hidden; of
    twelve layers' gradients, 32 MB, the first are sent soon.
    """
    torch.manual_seed(0)
    width = MLP_WIDTHS["32MB"] // 2
    model = perceptron(*[width] * 13).to(device)
    x = torch.randn(64, width).to(device)
    ddp = DistributedDataParallel(model, bucket_cap_mb=4)
    gradients = torch.zeros(sum(p.numel() for p in model.parameters())).to(device)

    def compute() -> None:
        with ddp.no_sync():
            ddp(x).pow(2).mean().backward()

    calls = {
        "step": lambda: ddp(x).pow(2).mean().backward(),
        "compute": compute,
        "communicate": lambda: dist.all_reduce(gradients),
    }
    return times_of(calls, repetitions)


def messages(links: bool, repetitions: int) -> dict[str, Any]:
    """Return what many small reductions take, and what a large one takes."""
    os.environ["NPU_DISPATCH_LINKS"] = "auto" if links else "off"
    group = dist.new_group()
    one, many = (torch.zeros(SIZES[size], device="npu") for size in ("1", "64MB"))

    def small() -> None:
        for _ in range(CALLS):
            dist.all_reduce(one, group=group)

    def large() -> None:
        dist.all_reduce(many, group=group)

    return times_of({"small": small, "large": large}, repetitions)


def launches(repetitions: int) -> dict[str, Any]:
    """Return what an asynchronous call costs, and a task that does nothing."""
    t = torch.zeros(1).npu()
    times: dict[str, list[float]] = {"launch": [], "submit": []}
    for _ in range(repetitions + 1):
        began = clock()
        works = [dist.all_reduce(t, async_op=True) for _ in range(CALLS)]
        times["launch"].append((clock() - began) / CALLS)
        works[-1].wait()
        torch.npu.synchronize()
        times["submit"].append(timed(_C.submit_with_site, CALLS))
        torch.npu.synchronize()
    return {name: each[1:] for name, each in times.items()}


def measured(
    rank: int, store: str, repetitions: int, cases: Iterable[str]
) -> dict[str, Any]:
    """Return the times of each case, as one of two ranks."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "cpu:gloo,npu:hccl", init_method=f"file://{store}", rank=rank, world_size=2
    )
    found: dict[str, Any] = {}
    for case in cases:
        if case == "launch":
            found[case] = launches(repetitions)
        elif case == "flight_recorder":
            costs = [_C.collective_log_cost(1000) for _ in range(repetitions)]
            found[case] = {"log": costs}
        elif case.startswith("message_"):
            found[case] = messages(case == "message_linked", repetitions)
        elif case.startswith("hidden_"):
            found[case] = {n: hidden(p.device, repetitions) for n, p in PEERS.items()}
        else:
            found[case] = measure(case, repetitions)
    dist.barrier()
    dist.destroy_process_group()
    return found


def answer(connection: Connection, *arguments: Any) -> None:
    connection.send(measured(*arguments))


if __name__ == "__main__":
    rank, store, repetitions, *cases = sys.argv[1:]
    print(json.dumps(measured(int(rank), store, int(repetitions), cases)))
