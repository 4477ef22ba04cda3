"""What a scrape costs: `python bench/scrape.py [--streams 64]`.

Reads and renders segments of 64 busy streams, of two processes, as the sidecar
does. One JSON line per format that a scraper may ask for.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=31)
    wanted = parser.parse_args()
    from npu_dispatch.metrics import Scrapes
    from npu_dispatch.processes import Processes

    each = wanted.streams // wanted.processes
    trainers = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(each)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(wanted.processes)
    ]
    for trainer in trainers:
        assert trainer.stdout is not None
        assert trainer.stdout.readline() == "ready\n"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for trainer in trainers:
            source = Path(f"/dev/shm/npu_dispatch-{os.getuid()}/{trainer.pid}")
            shutil.copy(source, folder / source.name)
        gc.freeze()  # as the service does
        scrapes = Scrapes(Processes(directory=folder), ranked=True)
        found = []
        for name, accept in FORMATS.items():
            times = []
            for _ in range(wanted.repetitions):
                start = time.perf_counter()
                body, _ = scrapes.answer(accept)
                times.append(1e3 * (time.perf_counter() - start))
            found.append((name, times, body.count(b"\n")))
    for trainer in trainers:
        trainer.communicate("\n")
    for name, times, lines in found:
        print(
            json.dumps(
                {
                    "name": f"scrape_{name}",
                    "unit": "ms",
                    "p50": round(statistics.median(times), 2),
                    "least": round(min(times), 2),
                    "most": round(max(times), 2),
                    "n": len(times),
                    "streams": wanted.streams,
                    "processes": wanted.processes,
                    "lines": lines,
                }
            )
        )


if __name__ == "__main__":
    main()
