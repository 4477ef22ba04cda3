"""What starting costs: `import npu_dispatch` on top of torch, and the command.

Files are compiled to bytecode before the first measurement, as pip compiles those
that it installs, whatever PYTHONDONTWRITEBYTECODE says.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from _harness import bench, emit

PROGRAM = """
import time, torch
began = time.perf_counter()
import npu_dispatch
print((time.perf_counter() - began) * 1e3)
"""
COMMAND = str(Path(sys.executable).with_name("npu-dispatch"))
# By case: the arguments of the command.
COMMANDS = {"help": "--help", "ps": "ps"}


ENVIRONMENT = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
ENVIRONMENT.pop("PYTHONDONTWRITEBYTECODE", None)


def importing() -> float:
    """Return the milliseconds of an import, as the process itself sees them."""
    program = [sys.executable, "-c", PROGRAM]
    return float(subprocess.check_output(program, env=ENVIRONMENT))


def running(command: Sequence[str]) -> float:
    """Return the milliseconds from a command's start to its end."""
    began = time.perf_counter()
    subprocess.run(command, env=ENVIRONMENT, check=True, stdout=subprocess.DEVNULL)
    return 1e3 * (time.perf_counter() - began)


def median(measure: Callable[[], float], repetitions: int) -> float:
    measure()  # so that bytecode and files are there
    return round(statistics.median(measure() for _ in range(repetitions)), 1)


@bench(repetitions=(21, 7, 1))
def main(repetitions: int) -> None:
    """Print a JSON line per case; each measurement is a process of its own."""
    n = repetitions
    emit(case="import", ms=median(importing, n), n=n)
    nothing = median(lambda: running([sys.executable, "-c", "pass"]), n)
    for case, argument in COMMANDS.items():
        command = [COMMAND, argument]
        ms = median(lambda command=command: running(command), n)
        emit(case=case, ms=ms, python_ms=nothing, n=n)


if __name__ == "__main__":
    main()
