"""What being scraped costs a trainer: `python bench/scrape_gil.py`.

A trainer with 64 streams launches as fast as it can and notes how many launches
each 10 ms held: the trace of its launch rate. The cases alternate:

  quiet       nobody scrapes
  scraped     the service is scraped without a pause
  other_load  a process that never looks at the trainer burns as much: on one
              machine they share its CPUs, and the caches
  in_process  the trainer renders its own metrics in a thread, as an exporter
              without a helper would: what the trace looks like when it costs GIL

One JSON line per case, medians over the blocks: launches per second and the
range of the trace, CPU time of the launching thread per launch, the longest gap
between two launches, and the CPU time that all other threads of the trainer
took, launchers excepted. Only a thread of the trainer can hold its GIL, so
`other_threads_us` of 0 is 0 us of GIL.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from _harness import bench, emit

from npu_dispatch.observe.segment import StatsReader, segment_file

TRAINER = """
import sys, threading, time, torch
from npu_dispatch.metrics import NpuCollector
from prometheus_client import CollectorRegistry, generate_latest
import os
a = torch.ones(8, device="npu")
for _ in range(int(sys.argv[1]) - 1):
    with torch.npu.stream(torch.npu.Stream()):
        a.add_(1)
registry = CollectorRegistry()
registry.register(NpuCollector(pid=os.getpid()))
clock, cpu = time.perf_counter_ns, time.thread_time_ns
torch.npu.synchronize()
print("ready", flush=True)
for line in sys.stdin:
    seconds, render = line.split()
    end = clock() + int(float(seconds) * 1e9)
    def own():
        while clock() < end:
            generate_latest(registry)
    thread = threading.Thread(target=own)
    if render == "1":
        thread.start()
    rates, worst, spent, launches = [], 0, 0, 0
    at = clock()
    while at < end or not rates:  # once, however late this has begun
        begun, n, used = at, 0, cpu()
        while at - begun < 10_000_000:
            a.add_(1)
            n += 1
            now = clock()
            worst = max(worst, now - at)
            at = now
        spent += cpu() - used
        launches += n
        rates.append(n / (at - begun) * 1e9)
        torch.npu.synchronize()
        at = clock()
    if render == "1":
        thread.join()
    print(worst, spent / launches, *rates, flush=True)
"""
# As much work as rendering a scrape, of nobody.
LOAD = """
while True:
    sum(i * i for i in range(10_000))
"""


class Block:
    """What one block of a case gave."""

    def __init__(self, line: str, other_us: float) -> None:
        worst, launch, *rates = map(float, line.split())
        self.longest_gap_us, self.cpu_ns_per_launch = worst / 1e3, launch
        self.other_threads_us = other_us
        rates.sort()
        self.rate = statistics.median(rates)
        self.low = rates[len(rates) // 20]
        self.high = rates[-1 - len(rates) // 20]


class Trainer:
    def __init__(self, streams: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", TRAINER, str(streams)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"
        with StatsReader(segment_file(self.process.pid)) as reader:
            self._mine = {stream.thread for stream in reader.streams()}
        self._mine.add(self.process.pid)

    def _other_threads_ns(self) -> int:
        """Return the CPU time so far of all threads but main and launchers."""
        total = 0
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            if int(task.name) not in self._mine:
                total += int((task / "schedstat").read_text().split()[0])
        return total

    def start(self, seconds: float, *, render: bool) -> None:
        self._before = self._other_threads_ns()
        assert self.process.stdin is not None
        self.process.stdin.write(f"{seconds} {int(render)}\n")
        self.process.stdin.flush()

    def others_us(self) -> float:
        """Before the block ends: a thread that has ended takes its time along."""
        return (self._other_threads_ns() - self._before) / 1e3

    def result(self, others_us: float) -> Block:
        assert self.process.stdout is not None
        return Block(self.process.stdout.readline(), others_us)


def measure(
    trainer: Trainer, service: subprocess.Popen[str], seconds: float, blocks: int
) -> tuple[dict[str, list[Block]], list[float]]:
    """Return the blocks of each case, and the milliseconds of each scrape."""
    assert service.stdout is not None
    url = service.stdout.readline().strip() + "metrics"
    found: dict[str, list[Block]] = {}
    took: list[float] = []
    for _ in range(blocks):
        for case in ("quiet", "scraped", "other_load", "in_process"):
            trainer.start(seconds, render=case == "in_process")
            end = time.monotonic() + 0.95 * seconds
            if case == "scraped":
                while time.monotonic() < end:
                    begun = time.perf_counter()
                    urllib.request.urlopen(url).read()
                    seconds_taken = time.perf_counter() - begun
                    took.append(1e3 * seconds_taken)
                    # The service refuses more than 400 a second.
                    time.sleep(max(0.0, 0.004 - seconds_taken))
            elif case == "other_load":
                with subprocess.Popen([sys.executable, "-c", LOAD]) as burner:
                    time.sleep(max(0.0, end - time.monotonic()))
                    burner.kill()
            else:
                time.sleep(max(0.0, end - time.monotonic()))
            block = trainer.result(trainer.others_us())
            found.setdefault(case, []).append(block)
    assert trainer.process.stdin is not None
    trainer.process.stdin.close()
    trainer.process.wait()
    return found, took


@bench(seconds=(2.0, 0.5, 0.2), blocks=(5, 3, 1), streams=(64, 64, 4))
def main(seconds: float, blocks: int, streams: int) -> None:
    """Print a JSON line per case."""
    trainer = Trainer(streams)
    service = subprocess.Popen(
        [sys.executable, "-m", "npu_dispatch.observe.serve", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        found, took = measure(trainer, service, seconds, blocks)
    finally:
        service.terminate()
        service.wait()
    for case, measured in found.items():
        names = (
            *("rate", "low", "high", "cpu_ns_per_launch", "longest_gap_us"),
            "other_threads_us",
        )
        figures = {
            name: round(statistics.median(getattr(block, name) for block in measured))
            for name in names
        }
        if case == "scraped":
            figures["scrapes"] = len(took)
            figures["scrape_ms"] = round(statistics.median(took))
        emit(
            case=f"launches_{case}",
            **figures,
        )


if __name__ == "__main__":
    main()
