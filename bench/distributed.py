"""What collectives between two processes cost: hccl on npu, gloo on cpu.

Both are asked in turn by the same two processes, one thread each (_ranks.py). A
collective's time is the host's until its result is there. What communication hides
behind computation is asked of two network namespaces, where those may be made.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from typing import Any

import _ranks
from _harness import Effort, Only, bench, emit
from _processes import start
from _ranks import CALLS, SIZES, answer
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


def ask(effort: Effort, repetitions: int, cases: list[str]) -> dict[str, Any]:
    """Return the times of cases, of two ranks of this host."""
    with tempfile.TemporaryDirectory() as folder:
        asked = (f"{folder}/store", repetitions, cases)
        ranks = [start(effort, answer, rank, *asked) for rank in range(2)]
        found = [connection.recv() for _, connection in ranks]
        for process, _ in ranks:
            process.join()
    return found[0]


def ask_two_hosts(repetitions: int) -> dict[str, Any] | None:
    with two_hosts(RATE) as hosts, tempfile.TemporaryDirectory() as folder:
        if hosts is None:
            return None
        own = ("env", "GLOO_SOCKET_IFNAME=link", sys.executable, _ranks.__file__)
        asked = (f"{folder}/store", str(repetitions), HIDDEN)
        ranks = [
            subprocess.Popen([*host, *own, str(rank), *asked], stdout=subprocess.PIPE)
            for rank, host in enumerate(hosts)
        ]
        outputs = [rank.communicate()[0] for rank in ranks]
        if any(rank.returncode for rank in ranks):
            raise SystemExit("a rank failed")
        return json.loads(outputs[0])


@bench(repetitions=(31, 11, 1))
def main(repetitions: int, only: Only, effort: Effort) -> None:
    """Print a JSON line per case; `ratio` is npu's time over gloo's on cpu."""
    chosen = [*filter(only, (*AGAINST_GLOO, *OWN))]
    found = ask(effort, repetitions, chosen) if chosen else {}
    if only(HIDDEN):
        is_smoke = effort is Effort.SMOKE  # which starts no other interpreters
        more = None if is_smoke else ask_two_hosts(min(repetitions, 11))
        if more is None:
            emit(case=HIDDEN, not_measured="no network namespaces")
        found |= more or {}
    for case, times in found.items():
        emit(case=case, **figures_of(case, times))


if __name__ == "__main__":
    main()
