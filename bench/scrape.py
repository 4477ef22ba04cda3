"""What a scrape costs the exporter: `python bench/scrape.py [--streams 64]`.

Reads and renders segments of 64 busy streams, of two processes, as the service
does. One JSON line per format that a scraper may ask for.
"""

from __future__ import annotations

import gc
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _harness import bench, emit

from npu_dispatch.observe.segment import segment_file
from npu_dispatch.observe.segment.listing import Processes
from npu_dispatch.observe.serve.scrapes import Scrapes

PROGRAM = """
import sys, torch
streams = [torch.npu.Stream() for _ in range(int(sys.argv[1]))]
a = torch.ones(8, device="npu")
for stream in streams:
    with torch.npu.stream(stream):
        for _ in range(512):
            a.add_(1)
torch.npu.synchronize()
print("ready", flush=True)
sys.stdin.readline()
"""
FORMATS = {
    "text": "text/plain",
    "open_metrics": "application/openmetrics-text; version=1.0.0",
    "native": "application/openmetrics-text; version=2.0.0",
}


@bench(repetitions=(31, 15, 1), streams=(64, 64, 4), processes=(2, 2, 2))
def main(repetitions: int, streams: int, processes: int) -> None:
    """Print a JSON line per format."""
    each = streams // processes
    trainers = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(each)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(processes)
    ]
    for trainer in trainers:
        assert trainer.stdout is not None
        assert trainer.stdout.readline() == "ready\n"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for trainer in trainers:
            source = segment_file(trainer.pid)
            shutil.copy(source, folder / source.name)
        gc.freeze()  # as the service does
        scrapes = Scrapes(Processes(directory=folder), ranked=True)
        found = []
        for name, accept in FORMATS.items():
            times = []
            for _ in range(repetitions):
                start = time.perf_counter()
                body, _ = scrapes.answer(accept)
                times.append(1e3 * (time.perf_counter() - start))
            found.append((name, times, body.count(b"\n")))
    for trainer in trainers:
        trainer.communicate("\n")
    for name, times, lines in found:
        emit(
            case=f"scrape_{name}",
            ms=round(statistics.median(times), 2),
            least_ms=round(min(times), 2),
            most_ms=round(max(times), 2),
            n=len(times),
            lines=lines,
        )


if __name__ == "__main__":
    main()
