"""What torch.compile costs and gains on npu until retired, against cpu eager, cpu
compiled and npu eager; and the host's cost of launching a generated kernel.

`npu_compiled` is plain torch.compile of the model, `npu_reduce_overhead` the same with
that mode. `npu_whole_step` is compile_step(): all of a step, optimizer included, in
one graph, by the backend that it chooses; of the forward pass, which has no such step,
a captured NPUGraph. Of the larger models nothing is captured. `first_compile` is the
first step of a process: with an empty cache, and with that of an earlier process.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping

import torch
from _harness import Effort, Only, bench, emit
from _peers import REDUCED, WHOLE_STEP, Call, Peer, Times, Workers, timed_block
from torch import nn
from training import captured, deep_forward, training_step

PLAIN = ("cpu", "cpu_compiled", "npu", "npu_compiled")
ALL = (*PLAIN, REDUCED, WHOLE_STEP)
FORWARD = "mlp_16x16_forward"
# case: calls in a block; who is compared, as capturing takes minutes of compiling each
Cases = Mapping[str, tuple[int, tuple[str, ...]]]
CASES: Cases = {
    FORWARD: (100, ALL),
    "mlp_step": (30, ALL),
    "gpt_tiny_step": (5, ALL),
    "gpt_wide_step": (1, PLAIN),
    "cnn_step": (1, PLAIN),
    "lstm_step": (5, PLAIN),
}
# Not of a smoke run: Dynamo takes seconds in each process.
COMPILED = ("cpu_compiled", "npu_compiled")


def make(peer: Peer, case: str) -> Call:
    how = {"mode": "reduce-overhead"} if peer.name == REDUCED else {}
    whole = peer.name.startswith(WHOLE_STEP)
    if case != FORWARD:
        model = case.removesuffix("_step")
        return training_step(peer, model, "fused", whole=whole, **how)
    call = deep_forward(peer, **how)
    return captured(call) if whole else call


def ratios(times: dict[str, Times]) -> dict[str, float]:
    """Return the time of each peer over cpu's, of both that are compiled, and of
    compiled over eager on npu."""
    us = {peer: found.total for peer, found in times.items()}
    found = {f"{peer}_ratio": n / us["cpu"] for peer, n in us.items() if peer != "cpu"}
    for peer in ("npu_compiled", REDUCED):
        if peer in us:
            found[f"{peer}_to_npu_ratio"] = us[peer] / us["npu"]
    if "npu_compiled" in us:
        found["to_cpu_compiled_ratio"] = us["npu_compiled"] / us["cpu_compiled"]
    return {name: round(ratio, 3) for name, ratio in found.items()}


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

    return host_us(call, 1000, repetitions) - host_us(nothing, 1000, repetitions)


def host_us(call: Call, n: int, repetitions: int) -> float:
    for _ in range(3):
        timed_block(call, n)
    return statistics.median(timed_block(call, n).host for _ in range(repetitions))


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
        return host_us(lambda: function(x), 200, repetitions)

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
            timed_block(all_of_them, 1)
        blocks = [timed_block(all_of_them, 1).total for _ in range(repetitions)]
    return statistics.median(blocks) / lengths


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


def report(cases: Cases, repetitions: int, only: Only, effort: Effort) -> None:
    """Print a JSON line per case."""
    everyone = dict.fromkeys(peer for _, peers in cases.values() for peer in peers)
    left_out = COMPILED if effort is Effort.SMOKE else ()
    with Workers(
        *(p for p in everyone if p not in left_out), effort=effort, make=make
    ) as workers:
        for case in filter(only, cases):
            calls, peers = cases[case]
            workers.report(
                case,
                calls,
                repetitions,
                ratios,
                peers=[peer for peer in peers if peer not in left_out],
                same_cpu=True,
            )


@bench(repetitions=(12, 6, 1))
def main(repetitions: int, only: Only, effort: Effort) -> None:
    """Print a JSON line per case."""
    smoke = effort is Effort.SMOKE
    report(CASES, repetitions, only, effort)
    if only("first_compile"):
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
    if only(case := "launch_6_arguments"):
        emit(case=case, host_us=round(launch_us(30 * repetitions), 3))
    # A smoke run without the C++ compiler, as its peers are.
    how = {"backend": "eager"} if smoke else {"mode": "reduce-overhead"}
    if only(case := "reduce_overhead_20_parameters"):
        total, guards, own = reduced_call_us(30 * repetitions, 20, **how)
        emit(
            case=case,
            host_us=round(total, 2),
            guards_us=round(guards, 2),
            beyond_guards_us=round(total - guards, 2),
            own_us=round(own, 2),
        )
    if only(case := "reduce_overhead_96_lengths"):
        plain, reduced = (
            varying_lengths_us(5 * repetitions, 96, **each)
            for each in ((how, {"backend": "npugraphs"}) if smoke else ({}, how))
        )
        emit(
            case=case,
            ratio_to_default=round(reduced / plain, 3),
            default_us=round(plain, 2),
        )


if __name__ == "__main__":
    main()
