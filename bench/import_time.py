"""What `import npu_dispatch` costs on top of `import torch`."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys

PROGRAM = """
import time, torch
began = time.perf_counter()
import npu_dispatch
print((time.perf_counter() - began) * 1e3)
"""


def main(repetitions: int = 7) -> None:
    """Print one JSON line; each measurement is a process of its own."""
    env = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    times = [
        float(subprocess.check_output([sys.executable, "-c", PROGRAM], env=env))
        for _ in range(repetitions)
    ]
    p50 = round(statistics.median(times), 1)
    print(json.dumps({"case": "import", "unit": "ms", "p50": p50, "n": repetitions}))


if __name__ == "__main__":
    main()
