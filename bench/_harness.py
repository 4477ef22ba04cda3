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
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
import torch

import npu_dispatch  # noqa: F401 (a no-op where torch has loaded it)

clock = time.perf_counter_ns
Only = Callable[[str], bool]
Key, Figure = TypeVar("Key"), TypeVar("Figure")
# Whom npu is compared with (_peers.py); in a smoke run, with the first alone.
PEERS = ("npu", "cpu", "cpu_one_thread", "cpu_compiled")


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
    a quick and a smoke run. `effort`, `only` (whether a case is asked for, by its
    name) and `peers` (names) are given if the function has them.
    """

    def decorate(main: Callable[..., None]) -> click.Command:
        wanted = main.__code__.co_varnames[: main.__code__.co_argcount]

        def command(
            quick: bool, smoke: bool, only: str = "", **given: float | None
        ) -> None:
            effort = Effort.SMOKE if smoke else Effort.QUICK if quick else Effort.FULL
            values: dict[str, Any] = {
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
            values["effort"] = effort
            values["only"] = lambda name: only in name
            values["peers"] = PEERS[:2] if effort is Effort.SMOKE else PEERS
            main(**{name: values[name] for name in wanted})

        command.__doc__ = main.__doc__
        options = [
            click.option("--quick", is_flag=True, help="Fewer repetitions."),
            click.option("--smoke", is_flag=True, help="One: measures nothing."),
        ]
        if "only" in wanted:
            options.append(
                click.option("--only", default="", help="Cases with this in the name.")
            )
        for name, (full, quick, smoke) in sizes.items():
            about = f"Default: {full}; --quick: {quick}; --smoke: {smoke}."
            flag = f"--{name.replace('_', '-')}"
            options.append(click.option(flag, type=type(full), help=about))
        for option in options:
            command = option(command)
        return click.command()(command)

    return decorate


def timed(call: Callable[[], object], n: int = 1) -> float:
    """Return the nanoseconds of each of `n` calls, on average."""
    rounds = range(n)
    began = clock()
    for _ in rounds:
        call()
    return (clock() - began) / n


def in_turns(
    blocks: Mapping[Key, Callable[[], Figure]], repetitions: int, warm_ups: int = 0
) -> dict[Key, list[Figure]]:
    """Return what each block gave each time; which one goes first alternates."""
    found: dict[Key, list[Figure]] = {name: [] for name in blocks}
    for number in range(warm_ups + repetitions):
        for name in reversed(found) if number % 2 else found:
            figure = blocks[name]()
            if number >= warm_ups:
                found[name].append(figure)
    return found


def geometric_mean(ratios: Iterable[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, ratios)))


def resident_bytes(process: object = "self") -> int:
    """Return the memory that this process has now, or one with this id."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


def machine() -> dict[str, object]:
    """Return what a figure depends on."""
    about = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*: (.+)$", about, re.M)
    return {
        "cpu": model[1] if model else "unknown",
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
