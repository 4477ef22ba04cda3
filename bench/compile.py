"""What torch.compile costs and gains on npu until retired, against cpu eager, cpu
compiled and npu eager; and the host's cost of launching a generated kernel.

`npu_compiled` is plain torch.compile of the model, `npu_reduce_overhead` the same with
that mode. `npu_whole_step` is compile_step(): all of a step, optimizer included, in
one graph; of the forward pass, which has no such step, a captured NPUGraph. The larger
models are compiled plainly only. `first_compile` is the first step of a process: with
an empty cache, and with that of an earlier process.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable

import torch
from _harness import Effort, bench, emit
from _peers import (
    BY_NAME,
    Call,
    Peer,
    Workers,
    microseconds,
    serve_if_worker,
    timed_block,
    timer,
)
from steps import captured, deep_forward, training_step
from torch import nn

WHOLE_STEP = "npu_whole_step"
REDUCED = "npu_reduce_overhead"
BY_NAME["npu_compiled"] = Peer("npu_compiled", "npu", backend="inductor")
BY_NAME[REDUCED] = Peer(REDUCED, "npu", backend="inductor")
BY_NAME[WHOLE_STEP] = Peer(WHOLE_STEP, "npu", backend="inductor")
OTHERS = ("cpu", "cpu_compiled", "npu")
COMPILED = ("npu_compiled", REDUCED, WHOLE_STEP)
# Of a smoke run: Dynamo takes seconds in each process.
SMOKE_OTHERS, SMOKE_COMPILED = ("cpu", "npu"), (REDUCED, WHOLE_STEP)

FORWARD = "mlp_16x16_forward"
# case: model, kind of optimizer kernels, calls in a block
CASES = {
    FORWARD: ("", "none", 100),
    "mlp_step": ("mlp", "fused", 30),
    "gpt_tiny_step": ("gpt_tiny", "fused", 5),
}
# Minutes of compiling each, so without the modes that capture.
LARGER = {
    "gpt_wide_step": ("gpt_wide", "fused", 1),
    "cnn_step": ("cnn", "fused", 1),
    "lstm_step": ("lstm", "fused", 5),
}


def make(peer: Peer, case: str) -> Call:
    model, kind, _ = (CASES | LARGER)[case]
    how = {"mode": "reduce-overhead"} if peer.name == REDUCED else {}
    if model:
        if peer.name == WHOLE_STEP:
            return training_step(peer, model, kind, whole=True)
        return training_step(peer, model, kind, **how)
    call = deep_forward(peer, **how)
    return captured(call) if peer.name == WHOLE_STEP else call


ARGUMENTS = ", ".join(f"float* p{i}" for i in range(6))
SOURCE = f"""#include <torch/csrc/inductor/cpp_prefix.h>
extern "C" void kernel({ARGUMENTS}) {{ p0[0] += p5[0]; }}
"""


def launch_us(repetitions: int) -> float:
    """Microseconds that the caller of a kernel with 6 tensors spends."""
    from npu_dispatch.inductor.runtime import npu_kernel

    made = npu_kernel("bench", 0, [("rw", 4, ((8,), (1,)))] * 6, SOURCE)
    kernel = made if callable(made) else made.result()
    xs = [torch.zeros(8, device="npu") for _ in range(6)]

    def call() -> None:
        kernel(*xs)

    def nothing() -> None:
        len(xs)

    for _ in range(3):
        timed_block(call, 1000, "npu")
    blocks = [timed_block(call, 1000, "npu").host for _ in range(repetitions)]
    loops = [timed_block(nothing, 1000, "npu").host for _ in range(repetitions)]
    return statistics.median(blocks) - statistics.median(loops)


def reduced_call_us(
    repetitions: int, parameters: int, **how: str
) -> tuple[float, float, float]:
    """Microseconds that the caller of a function compiled so spends: in all;
    for Dynamo's guards, with a backend that returns a result made before; and for
    what is ours, the copy of the input among it.
    """
    from npu_dispatch.npu.graphs.replays import Replays

    layers = [nn.Linear(16, 16) for _ in range(parameters // 2)]
    model = nn.Sequential(*layers).npu()
    x = torch.rand(16, 16).npu()
    made = torch.zeros(16, 16).npu()

    def nothing(module: torch.fx.GraphModule, _: object) -> Callable[..., object]:
        return lambda *given: (made,)

    def evaluate(given: list[torch.Tensor]) -> list[torch.Tensor]:
        return [model(given[0])]

    def host(function: Callable[..., object]) -> float:
        def call() -> None:
            function(x)

        for _ in range(3):
            timed_block(call, 200, "npu")
        blocks = [timed_block(call, 200, "npu").host for _ in range(repetitions)]
        return statistics.median(blocks)

    with torch.no_grad():
        reduced = torch.compile(lambda x: model(x), **how)
        guards = torch.compile(lambda x: model(x), backend=nothing)
        given = [x, *model.parameters()]
        fixed = set(range(1, len(given)))
        own = Replays(evaluate, fixed, x.device.index, print)
        return host(reduced), host(guards), host(lambda _: own(list(given)))


def varying_lengths_us(repetitions: int, lengths: int, **how: str) -> float:
    """Microseconds that a call takes where a request has another length each time."""
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32)).npu()
    compiled = torch.compile(model, dynamic=True, **how)
    requests = [torch.rand(n, 32).npu() for n in range(2, 2 + lengths)]

    def all_of_them() -> None:
        for request in requests:
            compiled(request)

    with torch.no_grad():
        for _ in range(6):
            timed_block(all_of_them, 1, "npu")
        blocks = [timed_block(all_of_them, 1, "npu").total for _ in range(repetitions)]
    return statistics.median(blocks) / lengths


def larger(repetitions: int, only: str, effort: Effort) -> None:
    """Print a line for each larger model, compiled plainly."""
    if not any(only in case for case in LARGER):
        return
    peers = SMOKE_OTHERS if effort is Effort.SMOKE else (*OTHERS, "npu_compiled")
    with Workers(*peers, effort=effort) as workers:
        for case, (_, kind, calls) in LARGER.items():
            if only not in case:
                continue
            times = workers.compare(case, calls, repetitions, same_cpu=True)
            ratios = {
                f"{peer}_ratio": round(found.total / times["cpu"].total, 3)
                for peer, found in times.items()
                if peer != "cpu"
            }
            if "npu_compiled" in times:
                ours, theirs = times["npu_compiled"], times["cpu_compiled"]
                ratios["to_cpu_compiled_ratio"] = round(ours.total / theirs.total, 3)
            emit(
                case=case,
                optimizer=kind,
                **ratios,
                **microseconds(times),
            )


# The first step of a process, with imports done and the device awake.
FIRST_STEP = """
import sys, time, torch
from torch import nn
device, options = sys.argv[1], {"backend": "eager"} if sys.argv[2:] else {}
layers = [nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.LayerNorm(64)]
model = nn.Sequential(*layers).to(device)
x = torch.rand(32, 64).to(device)
model(x).square().mean().backward()
import torch._inductor.compile_fx
began = time.perf_counter()
torch.compile(lambda: model(x).square().mean(), **options)().backward()
if device == "npu":
    torch.npu.synchronize()
print(time.perf_counter() - began)
"""


def first_steps_s(device: str, repetitions: int, smoke: bool) -> tuple[float, float]:
    """Seconds of the first step of a process: without a cache, and with a warm one."""
    cold, warm = [], []
    for _ in range(repetitions):
        with tempfile.TemporaryDirectory() as cache:
            env = os.environ | {"TORCHINDUCTOR_CACHE_DIR": cache}
            command = [sys.executable, "-c", FIRST_STEP, device, *["smoke"] * smoke]
            for found in (cold, warm):
                done = subprocess.run(
                    command, env=env, check=True, capture_output=True, text=True
                )
                found.append(float(done.stdout))
    return statistics.median(cold), statistics.median(warm)


@bench(repetitions=(12, 6, 1))
def main(repetitions: int, only: str, effort: Effort) -> None:
    """Print a JSON line per case."""
    smoke = effort is Effort.SMOKE
    others, compiled = (SMOKE_OTHERS, SMOKE_COMPILED) if smoke else (OTHERS, COMPILED)
    with Workers(*others, *compiled, effort=effort) as workers:
        for case, (_, kind, calls) in CASES.items():
            if only not in case:
                continue
            times = workers.compare(case, calls, repetitions, same_cpu=True)
            ratios = {
                f"{other}_ratio": round(times[other].total / times["cpu"].total, 3)
                for other in others[1:]
            }
            for ours in compiled:
                for other in others:
                    field = f"{ours}_ratio" + ("" if other == "cpu" else f"_to_{other}")
                    ratios[field] = round(times[ours].total / times[other].total, 3)
            emit(
                case=case,
                optimizer=kind,
                **ratios,
                **microseconds(times),
            )
    larger(repetitions, only, effort)
    if only in "first_compile":
        n = max(1, repetitions // 4)
        (cold, warm), (cpu_cold, cpu_warm) = (
            first_steps_s(device, n, smoke) for device in ("npu", "cpu")
        )
        emit(
            case="first_compile",
            cold_s=round(cold, 2),
            cpu_cold_s=round(cpu_cold, 2),
            ratio=round(cold / cpu_cold, 3),
            warm_s=round(warm, 3),
            cpu_warm_s=round(cpu_warm, 3),
        )
    if only in "launch_6_arguments":
        emit(
            case="launch_6_arguments",
            host_us=round(launch_us(30 * repetitions), 3),
        )
    if only in "reduce_overhead_20_parameters":
        # A smoke run without the C++ compiler, as its peers are.
        how = {"backend": "eager"} if smoke else {"mode": "reduce-overhead"}
        total, guards, own = reduced_call_us(30 * repetitions, 20, **how)
        emit(
            case="reduce_overhead_20_parameters",
            host_us=round(total, 2),
            guards_us=round(guards, 2),
            beyond_guards_us=round(total - guards, 2),
            own_us=round(own, 2),
        )
    if only in "reduce_overhead_96_lengths":
        how = {"backend": "eager"} if smoke else {}
        plain = varying_lengths_us(5 * repetitions, 96, **how)
        how = {"backend": "npugraphs"} if smoke else {"mode": "reduce-overhead"}
        reduced = varying_lengths_us(5 * repetitions, 96, **how)
        emit(
            case="reduce_overhead_96_lengths",
            ratio_to_default=round(reduced / plain, 3),
            default_us=round(plain, 2),
        )


if __name__ == "__main__":
    serve_if_worker(time=timer(make))
    main()
