"""What launching from several Python threads costs, to one stream and to their own.

Each thread launches `torch.add` on small tensors as often as the others; they
share the interpreter's lock, so what a launch costs is the time of all of them
over the number of launches, and 1 thread is what to compare with. On cpu, the
same threads and calls.
"""

from __future__ import annotations

import threading
from contextlib import nullcontext

import torch
from _harness import Effort, Only, bench, clock, emit
from _peers import Peer, Times, Workers, against_npu

THREADS = (1, 2, 4)
# Threads and whether each has its own stream.
CASES = {f"{n}_to_one_stream": (n, False) for n in THREADS} | {
    f"{n}_to_their_own": (n, True) for n in THREADS[1:]
}


def block(peer: Peer, case: str, launches: int, _: int) -> Times:
    """Return the times of a launch, until the last thread has returned, and until
    the last task is retired.
    """
    threads, own = CASES[case]
    each = max(1, launches // threads)
    is_npu = peer.device == "npu"
    common = torch.npu.Stream() if is_npu else None
    start, done = threading.Barrier(threads + 1), threading.Barrier(threads + 1)

    def launch() -> None:
        a, b = (torch.rand(8, 8).to(peer.device) for _ in range(2))
        stream = torch.npu.Stream() if own and is_npu else common
        with torch.npu.stream(stream) if stream else nullcontext():
            torch.add(a, b)
            start.wait()
            for _ in range(each):
                torch.add(a, b)
            done.wait()

    running = [threading.Thread(target=launch) for _ in range(threads)]
    for thread in running:
        thread.start()
    peer.wait()
    start.wait()
    began = clock()
    done.wait()
    returned = clock()
    peer.wait()
    retired = clock()
    for thread in running:
        thread.join()
    ns = 1e3 * each * threads
    return Times((returned - began) / ns, (retired - began) / ns)


@bench(launches=(4000, 4000, 4), repetitions=(21, 9, 1))
def main(launches: int, repetitions: int, only: Only, effort: Effort) -> None:
    """Print a JSON line per case; `over_one` is npu's cost over one thread's."""
    alone = 0.0
    with Workers("npu", "cpu", effort=effort, time=block) as workers:
        for case in CASES:
            if not only(case) and case != "1_to_one_stream":
                continue
            times = workers.compare(case, launches, repetitions)
            npu = times["npu"].host
            alone = alone or npu
            emit(
                case=case,
                npu_ns=round(1e3 * npu),
                cpu_ns=round(1e3 * times["cpu"].host),
                **against_npu(times, "host"),
                total_ratio=against_npu(times)["ratio"],
                over_one=round(npu / alone, 2),
            )


if __name__ == "__main__":
    main()
