"""What a replayed graph costs until it is retired, against the same code on cpu.

Training steps have the same kind of optimizer kernels on both; `..._defaults` has
torch's. Also the host's cost of `replay()` for short and long graphs, and what
many replays leave behind.
"""

from __future__ import annotations

import gc
import statistics

import torch
from _harness import Effort, bench, emit, resident_bytes
from _peers import (
    CPU,
    NPU,
    Call,
    Peer,
    Workers,
    against_npu,
    microseconds,
    serve_if_worker,
    timed_block,
    timer,
)
from steps import captured, deep_forward, training_step


def replayed(step: Call, peer: Peer) -> Call:
    """Return `step` itself on cpu, and its replay on npu."""
    return step if peer.device == "cpu" else captured(step)


def forward(peer: Peer) -> Call:
    """The compiler knows that the weights do not change ("freezing")."""
    frozen = {"options": {"freezing": True}} if peer.backend == "inductor" else {}
    return replayed(deep_forward(peer, **frozen), peer)


FORWARD = "mlp_16x16_forward"
# case: model, kind of optimizer kernels, calls in a block
STEPS = {
    "mlp_step": ("mlp", "foreach", 30),
    "gpt_tiny_step": ("gpt_tiny", "fused", 5),
    "gpt_tiny_foreach_step": ("gpt_tiny", "foreach", 5),
    "gpt_tiny_defaults_step": ("gpt_tiny", "defaults", 5),
}
ALL_PEERS = (FORWARD, "mlp_step", "gpt_tiny_step")


def make(peer: Peer, case: str) -> Call:
    if case == FORWARD:
        return forward(peer)
    model, kind, _ = STEPS[case]
    if peer not in (NPU, CPU):
        kind = "fused"  # fastest there
    step = training_step(peer, model, kind, in_a_graph=peer is NPU)
    return replayed(step, peer)


def host_cost(length: int, repetitions: int) -> float:
    """Microseconds that the caller of replay() spends, for `length` nodes."""
    x = torch.zeros(8, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        for _ in range(length):
            x.add_(1)
    blocks = [timed_block(graph.replay, 200, "npu").host for _ in range(repetitions)]
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
    repetitions: int, replays: int, only: str, peers: list[str], effort: Effort
) -> None:
    """Print a JSON line per case."""
    with Workers(*peers, effort=effort) as workers:
        for case in (FORWARD, *STEPS):
            if only not in case:
                continue
            _, kind, calls = STEPS.get(case, ("", "none", 100))
            times = workers.compare(
                case,
                calls,
                repetitions,
                # Other kinds of kernels change nothing for the other peers.
                peers=peers if case in ALL_PEERS else ["npu", "cpu"],
                same_cpu=True,
            )
            emit(
                case=case,
                optimizer=kind,
                **against_npu(times),
                **microseconds(times),
                npu_host_us=round(times["npu"].host, 2),
            )
    for length in (1, 10, 100, 1000):
        if only in "replay":
            cost = round(host_cost(length, repetitions), 2)
            emit(
                case=f"replay_of_{length}_nodes",
                host_us=cost,
            )
    if only in "leaks":
        process, allocator = leftovers(replays)
        emit(
            case="leaks",
            replays=replays,
            process_bytes=process,
            allocator_bytes=allocator,
            # A page table and a heap may grow by this much without a leak.
        )


if __name__ == "__main__":
    serve_if_worker(time=timer(make))
    main()
