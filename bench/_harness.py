"""What every benchmark has in common: options, JSON lines, the machine.

A benchmark prints a line about itself and one per case. `bench/run_all.py` runs
them all several times; `--quick` chooses fewer repetitions, `--smoke` a single one:
it shows that the file works, and measures nothing. tests/unit/test_benches.py does.
"""

from __future__ import annotations

import enum
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import click
import torch

import npu_dispatch  # noqa: F401 (a no-op where torch has loaded it)

clock = time.perf_counter_ns
# Whom npu is compared with (_peers.py), and in a smoke run.
PEERS = ("npu", "cpu", "cpu_one_thread", "cpu_compiled")
SMOKE_PEERS = PEERS[:2]


class Effort(enum.IntEnum):
    """How much a run measures; indexes what `bench` is given."""

    FULL = 0
    QUICK = 1
    SMOKE = 2


def emit(**fields: object) -> None:
    """Print one JSON line."""
    print(json.dumps(fields), flush=True)


def bench(
    **sizes: tuple[float, float, float],
) -> Callable[[Callable[..., None]], click.Command]:
    """Make a function the command of its file, after a line about the run.

    Each keyword is an option and the function's argument: its default in a full,
    a quick and a smoke run. `effort`, `only` (a part of cases' names) and `peers`
    (names) are given if they are asked for.
    """

    def decorate(main: Callable[..., None]) -> click.Command:
        wanted = main.__code__.co_varnames[: main.__code__.co_argcount]

        def command(
            quick: bool,
            smoke: bool,
            only: str = "",
            peers: str = "",
            **given: float | None,
        ) -> None:
            effort = Effort.SMOKE if smoke else Effort.QUICK if quick else Effort.FULL
            values: dict[str, object] = {
                name: sizes[name][effort] if value is None else value
                for name, value in given.items()
            }
            emit(
                bench=Path(sys.argv[0]).stem,
                effort=effort.name.lower(),
                is_measurement=effort is not Effort.SMOKE,
                **values,
                **machine(),
            )
            default = SMOKE_PEERS if effort is Effort.SMOKE else PEERS
            compared = peers.split(",") if peers else list(default)
            values |= {"only": only, "effort": effort, "peers": compared}
            main(**{name: values[name] for name in wanted})

        command.__doc__ = main.__doc__
        made = click.command()(command)
        for name, (full, quick, smoke) in sizes.items():
            about = f"Default: {full}; --quick: {quick}; --smoke: {smoke}."
            flag = f"--{name.replace('_', '-')}"
            made = click.option(flag, type=type(full), help=about)(made)
        flags = {
            "quick": "Fewer repetitions.",
            "smoke": "One repetition: shows that it runs, and measures nothing.",
        }
        for name, about in flags.items():
            made = click.option(f"--{name}", is_flag=True, help=about)(made)
        texts = {
            "only": "Cases whose name contains this.",
            "peers": f"Who is compared; --smoke: {','.join(SMOKE_PEERS)}.",
        }
        for name, about in texts.items():
            if name in wanted:
                made = click.option(f"--{name}", default="", help=about)(made)
        return made

    return decorate


def timed(call: Callable[[], object], n: int = 1) -> float:
    """Return the nanoseconds of each of `n` calls, on average."""
    rounds = range(n)
    began = clock()
    for _ in rounds:
        call()
    return (clock() - began) / n


def geometric_mean(ratios: Iterable[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, ratios)))


def resident_bytes() -> int:
    """Return the memory that this process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


def machine() -> dict[str, object]:
    """Return what a figure depends on."""
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
