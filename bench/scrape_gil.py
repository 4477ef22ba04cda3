"""What being scraped costs a trainer, and a scrape the exporter.

A trainer with 64 streams launches as fast as it can and notes how many launches
each 10 ms held: the trace of its launch rate. The cases alternate:

  quiet       nobody scrapes
  scraped     the service is scraped without a pause
  other_load  a process that never looks at the trainer keeps a core busy: on one
              machine they share its CPUs, and the caches
  in_process  the trainer renders its own metrics in a thread, as an exporter
              without a helper would: what the trace looks like when it costs GIL

One JSON line per case, medians over the blocks: launches per second, the longest gap
between two launches, and the CPU time that all other threads of the trainer
took, launchers excepted. Only a thread of the trainer can hold its GIL, so
`other_threads_us` of 0 is 0 us of GIL.

Then the milliseconds and lines of a scrape of all those streams, in each format that
a scraper may ask for, of two such processes.
"""

from __future__ import annotations

import gc
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from _harness import bench, emit, timed
from _processes import busy

from npu_dispatch.observe.segment import StatsReader, segment_file
from npu_dispatch.observe.serve.options import ServiceConfig
from npu_dispatch.observe.serve.scrapes import Scrapes

FORMATS = {
    "text": "text/plain",
    "open_metrics": "application/openmetrics-text; version=1.0.0",
    "native": "application/openmetrics-text; version=2.0.0",
}
TRAINER = """
import sys, threading, time, torch
from npu_dispatch.metrics import NpuCollector
from prometheus_client import CollectorRegistry, generate_latest
import os
a = torch.ones(8, device="npu")
for _ in range(int(sys.argv[1]) - 1):
    with torch.npu.stream(torch.npu.Stream()):
        for _ in range(512):
            a.add_(1)
registry = CollectorRegistry()
registry.register(NpuCollector(pid=os.getpid()))
clock = time.perf_counter_ns
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
    rates, worst = [], 0
    at = clock()
    while at < end or not rates:  # once, however late this has begun
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
    if render == "1":
        thread.join()
    print(worst, *rates, flush=True)
"""


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

    def result(self) -> dict[str, float]:
        """Before the block ends: a thread that has ended takes its time along."""
        others_us = (self._other_threads_ns() - self._before) / 1e3
        assert self.process.stdout is not None
        worst, *rates = map(float, self.process.stdout.readline().split())
        return {
            "rate": statistics.median(rates),
            "longest_gap_us": worst / 1e3,
            "other_threads_us": others_us,
        }

    def end(self) -> None:
        self.process.communicate()


def measure(
    trainer: Trainer, service: subprocess.Popen[str], seconds: float, blocks: int
) -> tuple[dict[str, list[dict[str, float]]], list[float]]:
    """Return the blocks of each case, and the milliseconds of each scrape."""
    assert service.stdout is not None
    url = service.stdout.readline().strip() + "metrics"
    found: dict[str, list[dict[str, float]]] = {}
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
            with busy(int(case == "other_load")):
                time.sleep(max(0.0, end - time.monotonic()))
            found.setdefault(case, []).append(trainer.result())
    return found, took


def launches(seconds: float, blocks: int, streams: int) -> None:
    trainer = Trainer(streams)
    service = subprocess.Popen(
        [sys.executable, "-m", "npu_dispatch", "serve", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        found, took = measure(trainer, service, seconds, blocks)
    finally:
        service.terminate()
        service.wait()
        trainer.end()
    for case, measured in found.items():
        figures = {
            name: round(statistics.median(each[name] for each in measured))
            for name in measured[0]
        }
        if case == "scraped":
            figures["scrape_ms"] = round(statistics.median(took))
        emit(case=f"launches_{case}", **figures)


def scrapes(repetitions: int, streams: int) -> None:
    trainers = [Trainer(streams // 2) for _ in range(2)]
    with tempfile.TemporaryDirectory() as folder:
        for trainer in trainers:
            shutil.copy(segment_file(trainer.process.pid), folder)
        gc.freeze()  # as the service does
        exporter = Scrapes(ServiceConfig(directory=Path(folder), kept_seconds=0.0))
        for name, accept in FORMATS.items():
            times = [
                timed(lambda accept=accept: exporter.answer(accept)) / 1e6
                for _ in range(repetitions)
            ]
            emit(
                case=f"scrape_{name}",
                ms=round(statistics.median(times), 2),
                most_ms=round(max(times), 2),
                n=len(times),
                lines=exporter.answer(accept)[0].count(b"\n"),
            )
    for trainer in trainers:
        trainer.end()


@bench(
    seconds=(2.0, 0.5, 0.2), blocks=(5, 3, 1), streams=(64, 64, 4), scraped=(31, 15, 1)
)
def main(seconds: float, blocks: int, streams: int, scraped: int) -> None:
    """Print a JSON line per case."""
    launches(seconds, blocks, streams)
    scrapes(scraped, streams)


if __name__ == "__main__":
    main()
