"""What being scraped costs a trainer: `python bench/scrape_gil.py`.

A trainer launches as fast as it can and notes how many launches each 10 ms
held. Half of the time the sidecar is scraped without a pause. One JSON line per
case: the launch rate quiet and scraped, and the longest gap between two
launches. On one machine they share its CPUs, so the last case burns as much in
a process that never looks at the trainer: what is left is what scraping costs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
import urllib.request

TRAINER = """
import sys, time, torch
a = torch.ones(8, device="npu")
clock = time.perf_counter_ns
torch.npu.synchronize()
print("ready", flush=True)
for line in sys.stdin:
    end = clock() + int(float(line) * 1e9)
    rates, worst = [], 0
    at = clock()
    while at < end:
        begun, n = at, 0
        while at - begun < 10_000_000:
            a.add_(1)
            n += 1
            now = clock()
            worst = max(worst, now - at)
            at = now
        rates.append(n / (at - begun) * 1e9)
        torch.npu.synchronize()
        at = clock()
    print(*rates, worst, flush=True)
"""
# As much work as rendering a scrape, of nobody.
IDLE = """
import sys
while True:
    sum(i * i for i in range(10_000))
"""


class Trainer:
    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", TRAINER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def start(self, seconds: float) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()

    def result(self) -> tuple[float, float]:
        """Return launches per second, median, and the longest gap in us."""
        assert self.process.stdout is not None
        *rates, worst = map(float, self.process.stdout.readline().split())
        return statistics.median(rates), worst / 1e3


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=2.0, help="of each block")
    parser.add_argument("--blocks", type=int, default=5)
    wanted = parser.parse_args()
    trainer = Trainer()
    service = subprocess.Popen(
        [sys.executable, "-m", "npu_dispatch.service", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert service.stdout is not None
    url = service.stdout.readline().strip() + "metrics"
    found: dict[str, list[tuple[float, float]]] = {}
    scrapes = 0
    for _ in range(wanted.blocks):
        for case in ("quiet", "scraped", "other_load"):
            trainer.start(wanted.seconds)
            end = time.monotonic() + wanted.seconds
            if case == "scraped":
                while time.monotonic() < end:
                    urllib.request.urlopen(url).read()
                    scrapes += 1
            elif case == "other_load":
                with subprocess.Popen([sys.executable, "-c", IDLE]) as burner:
                    time.sleep(max(0.0, end - time.monotonic()))
                    burner.kill()
            found.setdefault(case, []).append(trainer.result())
    assert trainer.process.stdin is not None
    trainer.process.stdin.close()
    trainer.process.wait()
    service.terminate()
    service.wait()
    for case, blocks in found.items():
        print(
            json.dumps(
                {
                    "name": f"launches_{case}",
                    "unit": "1/s",
                    "p50": round(statistics.median(rate for rate, _ in blocks)),
                    "longest_gap_us": round(statistics.median(b[1] for b in blocks)),
                    "n": len(blocks),
                    "scrapes": scrapes if case == "scraped" else 0,
                }
            )
        )


if __name__ == "__main__":
    main()
