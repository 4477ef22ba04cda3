"""What a scrape costs: `python bench/scrape.py [--streams 64]`.

Reads and renders segments of 64 busy streams (8 processes of 8) as the sidecar
does. One JSON line.
"""

from __future__ import annotations

import argparse
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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--processes", type=int, default=2)
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
        scrapes = Scrapes(Processes(directory=folder), ranked=True)
        times = []
        for _ in range(20):
            start = time.perf_counter()
            body, _ = scrapes.answer("application/openmetrics-text; version=1.0.0")
            times.append(1e3 * (time.perf_counter() - start))
    for trainer in trainers:
        trainer.communicate("\n")
    print(
        json.dumps(
            {
                "name": "scrape",
                "unit": "ms",
                "p50": round(statistics.median(times), 2),
                "p99": round(max(times), 2),
                "n": len(times),
                "streams": wanted.streams,
                "lines": body.count(b"\n"),
            }
        )
    )


if __name__ == "__main__":
    main()
