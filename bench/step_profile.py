"""Where the microseconds of a training step go, and which thread bounds it.

The program's thread launches, and waits at a block's end; the launcher runs kernels,
does what is between two that are queued, and waits for work. Both are timed in the same
blocks, from the engine's own trace; `untraced_us` is a step without it. The thread that
waits less for the other one bounds the step.

Then the most expensive kernels, in microseconds of a step: on npu, and on cpu by
torch.profiler, which adds about a microsecond to each call.

The cases `compiled_...` are the caller's microseconds of the small MLP's step under
torch.compile, by what it is in (with the clock's own cost, about 0.1 us each time):

- `forward`: Dynamo's guards and the code that it writes
- `autograd`: AOTAutograd's wrappers
- `graph`, `backward_graph`: the programs that Inductor writes, with their launches
- `backward`: torch's engine, and AOTAutograd's wrappers
- `zero_grad`, `optimizer`: eager code
- `step`: the rest
"""

from __future__ import annotations

import os
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from _harness import Effort, Only, bench, clock, emit
from _peers import WARM_UPS, Call, Peer, Workers, timed_block
from dynamic import encoder_steps
from torch.autograd import DeviceType
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from training import training_step

from npu_dispatch.observe.trace.trace_file import TraceFile, trace_path

# model: steps in a block, kind of optimizer kernels
MODELS = {
    "mlp": (30, "foreach"),
    "lstm": (5, "fused"),
    "gpt_tiny": (5, "fused"),
    "gpt_wide": (1, "fused"),
    "encoder": (40, ""),
}
SHOWN = 10  # kernels
COMPILED = "compiled"
OUTSIDE = "outside"  # of a step

# Of each operator: calls in a step, and microseconds of all of them.
Kernels = dict[str, tuple[float, float]]


def make(peer: Peer, model: str) -> Call:
    if model == "encoder":
        return encoder_steps(peer, model)
    return training_step(peer, model, MODELS[model][1])


class Parts:
    """How long the host has been in each part of its steps, without those inside."""

    def __init__(self) -> None:
        self.ns: dict[str, int] = defaultdict(int)
        self.inside = [OUTSIDE]
        self.since = clock()

    def _note(self) -> None:
        now = clock()
        self.ns[self.inside[-1]] += now - self.since
        self.since = now

    def enter(self, part: str) -> None:
        self._note()
        self.inside.append(part)

    def leave(self) -> None:
        self._note()
        self.inside.pop()

    def at(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.enter(part)
            try:
                return function(*args, **kwargs)
            finally:
                self.leave()

        call._boxed_call = True  # type: ignore[attr-defined]  # of a graph
        return call


@contextmanager
def timed_parts() -> Iterator[Parts]:
    """Time backward(), zero_grad() and the optimizer's step()."""
    parts = Parts()
    backward, zero_grad = torch.Tensor.backward, torch.optim.Optimizer.zero_grad
    hooks = [
        register_optimizer_step_pre_hook(lambda *_: parts.enter("optimizer")),
        register_optimizer_step_post_hook(lambda *_: parts.leave()),
    ]
    torch.Tensor.backward = parts.at("backward", backward)
    torch.optim.Optimizer.zero_grad = parts.at("zero_grad", zero_grad)
    try:
        yield parts
    finally:
        torch.Tensor.backward, torch.optim.Optimizer.zero_grad = backward, zero_grad
        for hook in hooks:
            hook.remove()


class Seen(Peer):
    """One whose compiled functions are parts, with AOTAutograd and graphs in them."""

    def compiled(self, function: Callable[..., Any], **how: Any) -> Callable[..., Any]:
        from torch._functorch import config
        from torch._inductor.compile_fx import compile_fx, compile_fx_inner

        parts: Parts = how["parts"]

        def inner(graph: Any, inputs: Any, **options: Any) -> Any:
            made = compile_fx_inner(graph, inputs, **options)
            name = "backward_graph" if options.get("is_backward") else "graph"
            made.current_callable = parts.at(name, made.current_callable)
            return made

        def backend(graph: Any, inputs: Any) -> Any:
            if how["smoke"]:  # without the C++ compiler
                return parts.at("autograd", parts.at("graph", graph.forward))
            return parts.at("autograd", compile_fx(graph, inputs, inner_compile=inner))

        config.enable_autograd_cache = False  # it keeps graphs without these parts
        return parts.at("forward", torch.compile(function, backend=backend))


def compiled(peer: Peer, n: int, blocks: int, smoke: bool) -> dict[str, float]:
    """Return the microseconds of a step on the host, by its part."""
    peer = Seen(peer.name, peer.device)
    found: dict[str, list[float]] = defaultdict(list)
    with timed_parts() as parts:
        step = training_step(peer, "mlp", "fused", parts=parts, smoke=smoke)
        step = parts.at("step", step)
        for number in range(blocks + 1):
            parts.ns.clear()
            timed_block(step, n, peer)
            if number:  # the first one compiles
                del parts.ns[OUTSIDE]
                for name, ns in parts.ns.items():
                    found[name].append(ns / n / 1e3)
    return {name: statistics.median(us) for name, us in found.items()}


class Trace:
    """The records of the busiest stream, block by block."""

    def __init__(self, file: TraceFile) -> None:
        self.file = file
        self.kernels: dict[str, list[float]] = {}

    def block(self, n: int) -> dict[str, float]:
        """Return microseconds of each of `n` steps in and between kernels."""
        self.file.read()
        _, records = max(self.file.all_rings(), key=lambda found: len(found[1]))
        names = self.file.names()
        at = {key: self.file.to_ns(records[key]) for key in ("started", "ended")}
        ran = (at["ended"] - at["started"]) / n / 1e3
        for number, us in zip(records["name"].tolist(), ran.tolist(), strict=True):
            name = names[number].removeprefix("aten::").partition(".")[0]
            sums = self.kernels.setdefault(name, [0.0, 0.0])
            sums[0] += 1 / n
            sums[1] += us
        gaps = (at["started"][1:] - at["ended"][:-1]) / n / 1e3
        queued = records["submitted"][1:] <= records["ended"][:-1]
        self.file.skip()
        return {
            "kernels": float(np.sum(ran)),
            "between": float(np.sum(gaps[queued])),
            "tasks": len(records) / n,
        }


def traced(peer: Peer, model: str, n: int, blocks: int) -> tuple[Any, Kernels]:
    """Return the microseconds of a step by what the threads do, and its kernels."""
    step = make(peer, model)
    for _ in range(WARM_UPS):
        timed_block(step, n, peer)
    plain = [timed_block(step, n, peer).total for _ in range(blocks)]
    found: dict[str, list[float]] = {"untraced": plain}
    with TraceFile(trace_path(os.getpid())) as file, timed_parts() as parts:
        file.wanted = True
        for _ in range(WARM_UPS):  # a stream notices with its next tasks
            timed_block(step, n, peer)
        file.skip()
        trace = Trace(file)
        for _ in range(blocks):
            parts.ns.clear()
            times = timed_block(step, n, peer)
            us = trace.block(n)
            us["waits_for_work"] = times.total - us["kernels"] - us["between"]
            us["total"] = times.total
            us["host_waits"] = times.total - times.host
            us["backward"], us["optimizer"] = (
                parts.ns[part] / n / 1e3 for part in ("backward", "optimizer")
            )
            us["forward"] = times.host - us["backward"] - us["optimizer"]
            for key, value in us.items():
                found.setdefault(key, []).append(value)
        file.wanted = False
    kernels = {k: (c / blocks, us / blocks) for k, (c, us) in trace.kernels.items()}
    return {key: statistics.median(values) for key, values in found.items()}, kernels


def profiled(peer: Peer, model: str, n: int, blocks: int) -> tuple[float, Kernels]:
    """Return the microseconds of a step on cpu, and its kernels."""
    step = make(peer, model)
    times = [timed_block(step, n, peer) for _ in range(WARM_UPS + blocks)]
    steps = n * blocks
    with torch.profiler.profile() as profile:
        for _ in range(steps):
            step()
    kernels = {
        row.key.removeprefix("aten::"): (
            row.count / steps,
            row.self_cpu_time_total / steps,
        )
        for row in profile.key_averages()
        if row.device_type == DeviceType.CPU
    }
    return statistics.median(block.total for block in times[WARM_UPS:]), kernels


def lines_of(npu: Kernels, cpu: Kernels) -> list[str]:
    """Return a line for each of the most expensive kernels."""
    dearest = sorted(npu, key=lambda name: npu[name][1], reverse=True)[:SHOWN]
    return [
        f"{name} | {npu[name][0]:.3g} | {npu[name][1]:.1f} | "
        + (f"{cpu[name][1]:.1f}" if name in cpu else "")
        for name in dearest
    ]


@bench(blocks=(20, 8, 1))
def main(blocks: int, only: Only, effort: Effort) -> None:
    """Print a JSON line per model; `kernels`: calls, npu, cpu."""
    smoke = effort is Effort.SMOKE
    with Workers("npu", "cpu", effort=effort) as workers:
        for model in filter(only, MODELS):
            n = 1 if smoke else MODELS[model][0]
            us, npu = workers.ask("npu", traced, model, n, blocks)
            cpu_us, cpu = workers.ask("cpu", profiled, model, n, blocks)
            tasks = us.pop("tasks")
            emit(
                case=model,
                **{f"{key}_us": round(value, 1) for key, value in us.items()},
                cpu_us=round(cpu_us, 1),
                tasks=round(tasks, 1),
                bound_by=(
                    "host" if us["waits_for_work"] > us["host_waits"] else "launcher"
                ),
                kernels=lines_of(npu, cpu),
            )
        for peer in ("npu", "cpu") if only(COMPILED) else ():
            us = workers.ask(peer, compiled, 1 if smoke else 30, blocks, smoke)
            shown = {f"{name}_us": round(value, 1) for name, value in us.items()}
            emit(case=f"{COMPILED}_{peer}", **shown)


if __name__ == "__main__":
    main()
