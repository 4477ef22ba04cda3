"""What launching from several Python threads costs, to one stream and to their own.

Each thread launches `torch.add` on small tensors as often as the others; they
share the interpreter's lock, so what a launch costs is the time of all of them
over the number of launches, and 1 thread is what to compare with. On cpu, the
same threads and calls.
"""

from __future__ import annotations

import statistics
import threading
from contextlib import nullcontext

import torch
from _harness import Effort, bench, clock, emit
from _peers import Peer, Workers, serve_if_worker

THREADS = (1, 2, 4)
# Threads and whether each has its own stream.
CASES = {f"{n}_to_one_stream": (n, False) for n in THREADS} | {
    f"{n}_to_their_own": (n, True) for n in THREADS[1:]
}


def block(peer: Peer, case: str, launches: int) -> dict[str, float]:
    """The answer to "block": nanoseconds per launch until the last thread has
    returned, and until the last task is retired.
    """
    threads, own = CASES[case]
    is_npu = peer.device == "npu"
    common = torch.npu.Stream() if is_npu else None
    start, done = threading.Barrier(threads + 1), threading.Barrier(threads + 1)

    def launch() -> None:
        a, b = (torch.rand(8, 8).to(peer.device) for _ in range(2))
        stream = torch.npu.Stream() if own and is_npu else common
        with torch.npu.stream(stream) if stream else nullcontext():
            torch.add(a, b)
            start.wait()
            for _ in range(launches // threads):
                torch.add(a, b)
            done.wait()

    running = [threading.Thread(target=launch) for _ in range(threads)]
    for thread in running:
        thread.start()
    if is_npu:
        torch.npu.synchronize()
    start.wait()
    began = clock()
    done.wait()
    returned = clock()
    if is_npu:
        torch.npu.synchronize()
    retired = clock()
    for thread in running:
        thread.join()
    made = launches // threads * threads
    return {"host": (returned - began) / made, "total": (retired - began) / made}


@bench(launches=(4000, 4000, 4), repetitions=(21, 9, 1))
def main(launches: int, repetitions: int, only: str, effort: Effort) -> None:
    """Print a JSON line per case; `over_one` is npu's cost over one thread's."""
    alone = 0.0
    with Workers("npu", "cpu", effort=effort) as workers:
        for case in CASES:
            if only not in case and case != "1_to_one_stream":
                continue
            times: dict[str, list[dict[str, float]]] = {"npu": [], "cpu": []}
            for peer in times:
                workers.ask(peer, "block", case, launches)
            for _ in range(repetitions):
                for peer, found in times.items():
                    found.append(workers.ask(peer, "block", case, launches))
            host, total = (
                {
                    peer: statistics.median(each[what] for each in found)
                    for peer, found in times.items()
                }
                for what in ("host", "total")
            )
            alone = alone or host["npu"]
            emit(
                case=case,
                npu_ns=round(host["npu"]),
                cpu_ns=round(host["cpu"]),
                ratio=round(host["npu"] / host["cpu"], 3),
                total_ratio=round(total["npu"] / total["cpu"], 3),
                over_one=round(host["npu"] / alone, 2),
            )


if __name__ == "__main__":
    serve_if_worker(block=block)
    main()
