"""What a replayed graph costs until it is retired, against the same code on cpu.

Training steps have the same kind of optimizer kernels on both; `..._defaults` has
torch's. Also the host's cost of `replay()` for short and long graphs, and what
many replays leave behind.
"""

from __future__ import annotations

import gc
import statistics

import torch
from _harness import Effort, Only, bench, emit, resident_bytes
from _peers import CPU, NPU, Call, Peer, Workers, timed_block
from training import captured, deep_forward, training_step

FORWARD = "mlp_16x16_forward"
# case: model, kind of optimizer kernels, calls in a block
CASES = {
    FORWARD: ("", "none", 100),
    "mlp_step": ("mlp", "foreach", 30),
    "gpt_tiny_step": ("gpt_tiny", "fused", 5),
    "gpt_tiny_foreach_step": ("gpt_tiny", "foreach", 5),
    "gpt_tiny_defaults_step": ("gpt_tiny", "defaults", 5),
}
ALL_PEERS = (FORWARD, "mlp_step", "gpt_tiny_step")


def make(peer: Peer, case: str) -> Call:
    model, kind, _ = CASES[case]
    if model:
        if peer not in (NPU, CPU):
            kind = "fused"  # fastest there
        call = training_step(peer, model, kind, in_a_graph=peer == NPU)
    else:
        # The compiler knows that the weights do not change ("freezing").
        frozen = {"options": {"freezing": True}} if peer.backend == "inductor" else {}
        call = deep_forward(peer, **frozen)
    return call if peer.device == "cpu" else captured(call)


def host_cost(length: int, repetitions: int) -> float:
    """Microseconds that the caller of replay() spends, for `length` nodes."""
    x = torch.zeros(8, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        for _ in range(length):
            x.add_(1)
    blocks = [timed_block(graph.replay, 200).host for _ in range(repetitions)]
    return statistics.median(blocks)


def leftovers(replays: int) -> tuple[int, int]:
    """Bytes that the process and the allocator grow by over many replays."""
    x = torch.zeros(8, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        torch.rand(8, device="npu").add_(x)

    def many(count: int) -> None:
        for _ in range(count):
            graph.replay()
        torch.npu.synchronize()

    def sizes() -> tuple[int, int]:
        gc.collect()
        return resident_bytes(), torch.npu.memory_reserved()

    many(min(replays, 10_000))
    before = sizes()
    many(replays)
    after = sizes()
    return after[0] - before[0], after[1] - before[1]


@bench(repetitions=(12, 6, 1), replays=(1_000_000, 100_000, 10))
def main(
    repetitions: int, replays: int, only: Only, peers: tuple[str, ...], effort: Effort
) -> None:
    """Print a JSON line per case."""
    with Workers(*peers, effort=effort, make=make) as workers:
        for case in filter(only, CASES):
            _, kind, calls = CASES[case]
            workers.report(
                case,
                calls,
                repetitions,
                # Other kinds of kernels change nothing for the other peers.
                peers=peers if case in ALL_PEERS else ("npu", "cpu"),
                same_cpu=True,
                more={"optimizer": kind},
            )
    for length in (1, 10, 100, 1000):
        if only(case := f"replay_of_{length}_nodes"):
            emit(case=case, host_us=round(host_cost(length, repetitions), 2))
    if only("leaks"):
        process, allocator = leftovers(replays)
        # A page table and a heap may grow by a megabyte without a leak.
        emit(
            case="leaks",
            replays=replays,
            process_bytes=process,
            allocator_bytes=allocator,
        )


if __name__ == "__main__":
    main()
