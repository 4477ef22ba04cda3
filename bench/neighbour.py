"""What ordinary programs cost with torch's default threads, npu against cpu, alone
and beside processes that keep a core busy.

Some wait for the device at each token or step, and some only launch. Each program has
a process of its own on each device, and their blocks take turns.
"""

from __future__ import annotations

import os

from _harness import Effort, Only, bench, emit, geometric_mean
from _peers import REDUCED, WHOLE_STEP, Call, Peer, Workers
from _processes import busy
from dynamic import encoder_steps
from training import training_step
from waiting import PROGRAMS

# program: calls in a block, who runs it on npu, who on cpu
CASES = {
    "mlp": (100, "npu", "cpu"),
    "gpt_tiny": (20, "npu", "cpu"),
    "lstm": (20, "npu", "cpu"),
    "cnn": (2, "npu", "cpu"),
    "encoder": (40, "npu", "cpu"),
    "decode": (200, "npu", "cpu"),
    "generate": (128, "npu", "cpu"),
    "sac": (20, "npu", "cpu"),
    "vae": (20, "npu", "cpu"),
    "compile_step": (20, WHOLE_STEP, "cpu_compiled"),
    "reduce_overhead": (20, REDUCED, "cpu_compiled"),
}
MOST_NEIGHBOURS = 2


def make(peer: Peer, case: str) -> Call:
    if case in PROGRAMS:
        return PROGRAMS[case](peer)
    if case == "encoder":
        return encoder_steps(peer, case)
    if case in ("compile_step", "reduce_overhead"):  # of a transformer of two blocks
        how = {"mode": "reduce-overhead"} if peer.name == REDUCED else {}
        whole = peer.name == WHOLE_STEP
        return training_step(peer, "gpt_tiny", "fused", whole=whole, **how)
    return training_step(peer, case, "foreach" if case in ("mlp", "cnn") else "fused")


@bench(repetitions=(5, 3, 1))
def main(repetitions: int, only: Only, effort: Effort) -> None:
    """Print a JSON line per program and number of neighbours, then the geometric
    means."""
    ratios: dict[int, list[float]] = {}
    cores = os.cpu_count() or 1
    for case in filter(only, CASES):
        calls, ours, theirs = CASES[case]
        alone, most = 0.0, MOST_NEIGHBOURS
        if effort is Effort.SMOKE:  # a neighbour would keep others from their cores
            most = int(case == "decode")
        with Workers(ours, theirs, effort=effort, make=make) as workers:
            for n in range(most + 1):
                with busy(n):
                    times = workers.compare(case, calls, repetitions)
                npu, cpu = times[ours].total, times[theirs].total
                alone = alone or npu
                ratio = round(npu / cpu, 3)
                ratios.setdefault(n, []).append(ratio)
                # Of all cores, and then of the share of them beside `n` threads.
                fair = (cores + n) / cores
                emit(
                    case=f"{case}_beside_{n}",
                    ratio=ratio,
                    over_share=round(npu / alone / fair, 3),
                    npu_us=round(npu, 1),
                    cpu_us=round(cpu, 1),
                    npu_host_us=round(times[ours].host, 1),
                )
    for n, found in ratios.items():
        emit(case=f"geometric_mean_beside_{n}", ratio=round(geometric_mean(found), 3))


if __name__ == "__main__":
    main()
