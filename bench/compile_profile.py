"""Where the caller's microseconds of a compiled training step go: the small MLP.

Each figure is the time between two seams of torch.compile, with the clock's own cost in
it (about 0.1 us a seam). A case is a layer, from the caller inwards; `self_us` is what
it takes without the layers inside of it:

- `step`: the loop's body, of which the compiled function is a part
- `forward`: the call of the compiled function: Dynamo's guards and the code it writes
- `autograd`: what Dynamo calls: AOTAutograd's wrappers
- `graph`: the graph of forward: the program that Inductor writes, with its launches
- `backward`: loss.backward(): torch's engine, and AOTAutograd's wrappers
- `backward_graph`: the graph of backward
- `zero_grad`, `optimizer`: eager code
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from _harness import Effort, bench, clock, emit
from torch import nn

STEPS = 30
GRAPHS = ("graph", "backward_graph")
# layer: those inside of it
INSIDE = {
    "step": ("zero_grad", "forward", "backward", "optimizer"),
    "forward": ("autograd",),
    "autograd": ("graph",),
    "backward": ("backward_graph",),
}


class Seams:
    """The nanoseconds that were spent behind each seam."""

    def __init__(self) -> None:
        self.spent: dict[str, int] = defaultdict(int)

    def at(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            began = clock()
            try:
                return function(*args)
            finally:
                self.spent[name] += clock() - began

        call._boxed_call = True  # type: ignore[attr-defined]
        return call


def compiled(function: Callable[..., Any], seams: Seams, *, smoke: bool) -> Any:
    """Return the function, compiled so that AOTAutograd and its graphs are seen."""
    from torch._functorch import config
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    def inner(graph: Any, inputs: Any, **options: Any) -> Any:
        made = compile_fx_inner(graph, inputs, **options)
        name = GRAPHS[bool(options.get("is_backward"))]
        made.current_callable = seams.at(name, made.current_callable)
        return made

    def backend(graph: Any, inputs: Any) -> Any:
        if smoke:  # without the C++ compiler
            return seams.at("autograd", seams.at("graph", graph.forward))
        return seams.at("autograd", compile_fx(graph, inputs, inner_compile=inner))

    config.enable_autograd_cache = False  # it keeps graphs without these seams
    return torch.compile(function, backend=backend)


def profile(device: str, repetitions: int, *, smoke: bool) -> dict[str, float]:
    """Return the median microseconds of a step behind each seam."""
    torch.compiler.reset()
    torch.manual_seed(0)
    layers = [nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(64, 64)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    x, y = (torch.rand(32, 64).to(device) for _ in range(2))
    seams = Seams()
    loss = compiled(lambda: F.mse_loss(model(x), y), seams, smoke=smoke)

    def zero_grad() -> None:
        optimizer.zero_grad(set_to_none=True)

    forward = seams.at("forward", loss)
    backward = seams.at("backward", torch.Tensor.backward)
    others = seams.at("zero_grad", zero_grad), seams.at("optimizer", optimizer.step)

    def step() -> None:
        others[0]()
        backward(forward())
        others[1]()

    whole = seams.at("step", step)
    wait = torch.npu.synchronize if device == "npu" else lambda: None
    found: dict[str, list[float]] = defaultdict(list)
    for repetition in range(repetitions + 1):
        wait()
        seams.spent.clear()
        for _ in range(STEPS):
            whole()
        if repetition:  # the first one compiles
            for name, spent in seams.spent.items():
                found[name].append(spent / STEPS / 1e3)
    wait()
    return {name: statistics.median(us) for name, us in found.items()}


@bench(repetitions=(40, 20, 1))
def main(repetitions: int, only: str, effort: Effort) -> None:
    """Print a JSON line per layer and device."""
    for device in ("npu", "cpu"):
        us = profile(device, repetitions, smoke=effort is Effort.SMOKE)
        for name, spent in us.items():
            if only not in name:
                continue
            within = sum(us.get(inner, 0) for inner in INSIDE.get(name, ()))
            emit(
                case=f"{device}_{name}",
                total_us=round(spent, 1),
                self_us=round(spent - within, 1),
            )


if __name__ == "__main__":
    main()
