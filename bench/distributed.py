"""What collectives between two processes cost: hccl on npu, gloo on cpu.

Both are asked in turn by the same two processes, one thread each (_ranks.py). A
collective's time is the host's until its result is there. What communication hides
behind computation is asked of two network namespaces, where those may be made.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterable
from typing import Any

from _harness import Effort, Only, bench, emit
from _processes import Started, end, start
from _ranks import CALLS, SIZES, rank_main
from _two_hosts import two_hosts

# npu beside gloo: at most of its time, or at least of its speed.
AGAINST_GLOO = (
    *("all_reduce_1", "all_reduce_1KB", "all_reduce_1MB", "all_reduce_64MB"),
    *("reduce_scatter_32MB", "all_gather_32MB", "ddp_1.5MB", "ddp_32MB"),
    *("ddp_gpt_tiny", "ddp_gpt_tiny_captured"),
)
# Of hccl alone.
OWN = ("launch", "flight_recorder", "message_linked", "message_sockets")
# Collectives are refused by a capture so far: this one runs if it is asked for.
HIDDEN = "hidden_1Gbit"
RATE = "1gbit"
LINKED = ("env", "GLOO_SOCKET_IFNAME=link")


def figures_of(case: str, times: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a case's line."""
    if case == HIDDEN:
        return {f"{name}_hidden_percent": hidden(t) for name, t in times.items()}
    middle = {name: statistics.median(each) for name, each in times.items()}
    if case == "launch":
        return {
            "us": round(middle["launch"] / 1e3, 1),
            "over_submit_us": round((middle["launch"] - middle["submit"]) / 1e3, 1),
        }
    if case.startswith("message_"):
        # An all_reduce is taken for two messages of each rank: docs/internals/ranks.md.
        return {
            "alpha_us": round(middle["small"] / CALLS / 2 / 1e3, 1),
            "beta_ns_per_byte": round(middle["large"] / (4 * SIZES["64MB"]), 3),
        }
    if case == "flight_recorder":
        return {"us": round(middle["log"] / 1e3, 3)}
    ratio = middle["npu"] / middle["cpu"]
    return {
        "npu_ms": round(middle["npu"] / 1e6, 3),
        "cpu_gloo_ms": round(middle["cpu"] / 1e6, 3),
        "ratio": round(ratio, 2),
        "speed": round(1 / ratio, 2),
    }


def hidden(times: dict[str, list[float]]) -> float:
    """Return how much of the computation took place while data moved, in percent."""
    step, compute, communicate = (
        statistics.median(times[name]) for name in ("step", "compute", "communicate")
    )
    return round(100 * (compute + communicate - step) / compute, 1)


def report(ranks: list[Started], folder: str) -> None:
    """Print what the first of two ranks has measured."""
    outputs = [rank.stdout.read() for rank in ranks]
    all_well = end(*ranks)
    # Not by leaving a context: a forked rank would leave it, too.
    shutil.rmtree(folder)
    if not all_well:
        raise SystemExit("a rank failed")
    for case, times in map(json.loads, outputs[0].splitlines()):
        emit(case=case, **figures_of(case, times))


def ask(effort: Effort, repetitions: int, cases: Iterable[str]) -> None:
    """Measure cases with two ranks of this host."""
    folder = tempfile.mkdtemp()
    argv = [f"{folder}/store", str(repetitions), *cases]
    report([start(effort, "--rank", str(rank), *argv) for rank in range(2)], folder)


def ask_two_hosts(repetitions: int) -> None:
    with two_hosts(RATE) as hosts:
        if hosts is None:
            emit(case=HIDDEN, not_measured="no network namespaces for this user")
            return
        folder = tempfile.mkdtemp()
        argv = [f"{folder}/store", str(repetitions), HIDDEN]
        ranks = [
            start(Effort.FULL, "--rank", str(rank), *argv, before=(*host, *LINKED))
            for rank, host in enumerate(hosts)
        ]
        report(ranks, folder)


@bench(repetitions=(31, 11, 1))
def main(repetitions: int, only: Only, effort: Effort) -> None:
    """Print a JSON line per case; `ratio` is npu's time over gloo's on cpu."""
    if chosen := [*filter(only, (*AGAINST_GLOO, *OWN))]:
        ask(effort, repetitions, chosen)
    if not only(HIDDEN):
        return
    if effort is Effort.SMOKE:
        emit(case=HIDDEN, not_measured="a smoke run starts no other interpreters")
    else:
        ask_two_hosts(min(repetitions, 11))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        rank, store, count, *cases = sys.argv[2:]
        rank_main(int(rank), store, int(count), cases)
    else:
        main()
