"""What `import npu_dispatch` costs on top of `import torch`."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys

from _harness import at_most, bench, emit

PROGRAM = """
import time, torch
began = time.perf_counter()
import npu_dispatch
print((time.perf_counter() - began) * 1e3)
"""


@bench(repetitions=(7, 5, 1))
def main(repetitions: int) -> None:
    """Print one JSON line; each measurement is a process of its own."""
    env = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    times = [
        float(subprocess.check_output([sys.executable, "-c", PROGRAM], env=env))
        for _ in range(repetitions)
    ]
    p50 = round(statistics.median(times), 1)
    emit(case="import", ms=p50, n=repetitions, goals={"ms": at_most(50)})


if __name__ == "__main__":
    main()
