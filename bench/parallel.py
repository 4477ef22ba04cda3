"""What it gains to run those nodes of a graph at the same time that do not depend on
each other.

`ratio`: a replay as it is by default over one whose nodes run in turn, until retired,
in one process and by turns; `always_ratio`: where each replay runs so. `on_2`, `on_8`
and `on_64`: what so many cores would take of the time of one, by the measured times of
the nodes and their dependencies, if nothing else cost anything.
"""

from __future__ import annotations

import statistics

import torch
from _harness import Effort, at_most, bench, emit
from _peers import NPU, Call, timed_block
from steps import KINDS, training_step
from torch import nn

from npu_dispatch import _C

MODES = ("off", "auto", "always")
# Enough for the default mode to have chosen.
WARM_UPS = 40
# In which nodes are timed.
TIMED = 6
# case: replays in a block
CASES = {"four_towers": 20, "mlp": 50, "gpt_tiny": 5, "gpt_wide": 1}


class Towers(nn.Module):
    """Four branches, as an ensemble has them, until their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.towers = nn.ModuleList(
            nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
            for _ in range(4)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([tower(x) for tower in self.towers]).mean(0)


def towers() -> Call:
    torch.manual_seed(0)
    model, x = Towers().npu(), torch.rand(64, 64).npu()
    optimizer = torch.optim.AdamW(model.parameters(), **KINDS["fused"])

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        optimizer.step()

    return step


def graph_of(case: str) -> torch.npu.NPUGraph:
    """Return the graph of a training step."""
    if case == "four_towers":
        step = towers()
    else:
        step = training_step(NPU, case, "fused", in_a_graph=True)
    for _ in range(3):
        step()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        step()
    graph.reads = step  # its tensors, which have to stay
    return graph


@bench(repetitions=(40, 20, 1))
def main(repetitions: int, only: str, effort: Effort) -> None:
    """Print a JSON line per case."""
    for case, most in CASES.items():
        if only not in case:
            continue
        graph = graph_of(case)
        for _ in range(WARM_UPS if effort is not Effort.SMOKE else TIMED):
            graph.replay()
        torch.npu.synchronize()
        after, ns = graph.node_times()
        calls = 1 if effort is Effort.SMOKE else most
        times: dict[str, list[float]] = {mode: [] for mode in MODES}
        before = _C.set_parallel_replays("auto")
        for _ in range(repetitions):
            for mode in MODES:
                _C.set_parallel_replays(mode)
                timed_block(graph.replay, 1, "npu")
                times[mode].append(timed_block(graph.replay, calls, "npu").total)
        _C.set_parallel_replays(before)
        median = {mode: statistics.median(times[mode]) for mode in MODES}
        emit(
            case=case,
            nodes=len(ns),
            in_turn_us=round(median["off"], 1),
            ratio=round(median["auto"] / median["off"], 3),
            always_ratio=round(median["always"] / median["off"], 3),
            **{
                f"on_{n}": round(_C.makespan(after, ns, n) / sum(ns), 3)
                for n in (2, 8, 64)
            },
            kept=repetitions,
            goals={"ratio": at_most(1.03)},
        )


if __name__ == "__main__":
    main()
