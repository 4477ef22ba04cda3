"""Does `npu-dispatch serve` answer /livez under load: `python bench/service.py`.

10,000 requests a second and 500 clients that send a letter a second, together; once
on connections that stay, once on new ones. One JSON line for each.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from _harness import Only, bench, emit, resident_bytes

CLIENTS = Path(__file__).with_name("_clients.py")
CASES = {"quiet": None, "kept": (), "fresh": ("--fresh",)}


def started(port: int, seconds: float, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(CLIENTS), str(port), str(seconds), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@bench(seconds=(60.0, 10.0, 1.0), rate=(10_000, 10_000, 1000), slow=(500, 500, 20))
def main(seconds: float, rate: int, slow: int, only: Only) -> None:
    """Print a JSON line for each kind of load."""
    for case in filter(only, CASES):
        measure(case, seconds, rate, slow, CASES[case])


def measure(
    case: str, seconds: float, rate: int, slow: int, options: tuple[str, ...] | None
) -> None:
    service = subprocess.Popen(
        [sys.executable, "-m", "npu_dispatch", "serve", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert service.stdout is not None
    port = int(service.stdout.readline().strip().rstrip("/").rpartition(":")[2])
    clients = []
    if options is not None:
        many = (f"--rate={rate}", f"--slow={slow}", *options)
        clients.append(started(port, seconds, *many))
    probe = started(port, seconds, f"--probe={service.pid}")
    time.sleep(seconds / 2)
    before = resident_bytes(service.pid)
    told = json.loads(probe.communicate()[0])
    after = resident_bytes(service.pid)
    seen = json.loads(clients[0].communicate()[0]) if clients else {}
    service.terminate()
    service.wait()
    times = sorted(told["ms"])
    emit(
        case=case,
        probes=len(times),
        wrong=sum(told["wrong"].values()),
        why=told["wrong"],
        livez_ms=round(statistics.median(times), 2),
        p99_ms=round(times[int(0.99 * (len(times) - 1))], 2),
        most_ms=round(times[-1], 2),
        cpu_most_ms=round(max(told["cpu_ms"]), 2),
        resident_mib=round(after / 2**20, 1),
        grown_mib=round((after - before) / 2**20, 1),
        clients=seen,
    )


if __name__ == "__main__":
    main()
