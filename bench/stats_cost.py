"""What the statistics cost a launch: `python bench/stats_cost.py`.

Builds the engine twice, once from sources with every statistics write of the
launch path taken out, and compares: instructions per task (valgrind
--tool=callgrind), on the caller and on the launcher, and nanoseconds, in
alternating runs. The share is of the time that launching `torch.add` on small
tensors takes its caller. A smoke run builds no engine but the program alone, on the
engine of build/core.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from _callgrind import MARK, count, per_call
from _harness import Effort, bench, emit

ROOT = Path(__file__).parent.parent
BUILT = ROOT / "build/core/csrc/libnpu_core.a"
FLAGS = ("-std=c++20", "-g", "-fvisibility-inlines-hidden", "-pthread")
CALLS = 2000  # of a repeat of stats_cost.cpp
COUNTED_REPEATS = 20
OF_ADD = "instructions_of_torch_add"

# Per file: text, what it becomes without statistics.
WITHOUT = {
    "csrc/stats/layout.h": (
        ("kSamplePeriod = 16;", "kSamplePeriod = uint64_t{1} << 40;"),
        (
            (
                "  counter.store(counter.load(std::memory_order_relaxed) + by,\n"
                "                std::memory_order_relaxed);\n"
            ),
            "  (void)counter;\n  (void)by;\n",
        ),
        (
            (
                "    entry.name.store(reinterpret_cast<uint64_t>(name),\n"
                "                     std::memory_order_relaxed);\n"
                "    entry.site.store(site, std::memory_order_relaxed);\n"
            ),
            "    (void)name;\n    (void)site;\n",
        ),
    ),
    "csrc/taskqueue/executor.h": (
        (
            (
                "  stream_.block_->retired.store(position + 1, "
                "std::memory_order_relaxed);\n"
            ),
            "",
        ),
    ),
}

ADD = """
import torch
a, b = torch.ones(8, device="npu"), torch.ones(8, device="npu")
import time
for _ in range(200):
    torch.add(a, b)
torch.npu.synchronize()
times = []
for _ in range(200):
    start = time.perf_counter_ns()
    for _ in range(500):
        torch.add(a, b)
    times.append((time.perf_counter_ns() - start) / 500)
    torch.npu.synchronize()
print(sorted(times)[100])
"""


def make_without(folder: Path) -> None:
    """Write the changed sources; fail when the originals have changed."""
    for name, changes in WITHOUT.items():
        text = (ROOT / name).read_text()
        for old, new in changes:
            if text.count(old) != 1:
                sys.exit(f"{name} has changed: {old!r} is not there once")
            text = text.replace(old, new)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def build(program: Path, shadow: Path | None, effort: Effort) -> None:
    """Compile the engine and the program, with the changed sources if any."""
    listed = (ROOT / "csrc/CMakeLists.txt").read_text()
    core = listed.split("set(core_sources")[1].split(")")[0].split()
    sources = [ROOT / "csrc" / name for name in core]
    libraries: list[str | Path] = ["-ldl"]
    optimize = "-O2"
    if effort is Effort.SMOKE:
        sources, libraries, optimize = [], [BUILT, "-ldl"], "-O0"
    sources.append(ROOT / "bench/cpp/stats_cost.cpp")
    includes = [f"-I{ROOT}"]
    if shadow:
        includes.insert(0, f"-I{shadow}")
        sources = [
            changed if (changed := shadow / path.relative_to(ROOT)).exists() else path
            for path in sources
        ]
    compiler = ["ccache", "g++"] if shutil.which("ccache") else ["g++"]
    folder = program.with_suffix(".objects")
    folder.mkdir()

    def compiled(numbered: tuple[int, Path]) -> Path:
        number, source = numbered
        made = folder / f"{number}.o"
        flags = [*FLAGS, optimize, *includes]
        subprocess.run([*compiler, *flags, "-c", source, "-o", made], check=True)
        return made

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compiled, enumerate(sources)))
    link = ["g++", *FLAGS, *objects, *libraries, "-o", program]
    subprocess.run(link, check=True)


ADD_COUNTED = f"""
import os, sys, torch
a, b = torch.ones(8, device="npu"), torch.ones(8, device="npu")
def loop(n):
    for _ in range(n):
        torch.add(a, b)
loop(300)  # plans, caches, specialised bytecode
torch.npu.synchronize()
for n in sys.argv[1:]:
    {MARK}
    for _ in range(int(n)):
        torch.add(a, b)
    {MARK}
    torch.npu.synchronize()  # not counted: spinning is not the launch's
os._exit(0)
"""
# Below what the ring holds: no launch waits for space.
FEW_ADDS, MANY_ADDS = 200, 2200


def instructions_of_add() -> float:
    """Return what torch.add executes on its caller's thread, Python included."""
    with tempfile.TemporaryDirectory() as folder:
        # A part with launches comes after each other one.
        numbers = (str(FEW_ADDS), str(MANY_ADDS))
        few, many = count(Path(folder), ADD_COUNTED, *numbers)[1::2]
    return per_call(few, many, MANY_ADDS - FEW_ADDS).total()


def collected(function: str, *command: str | Path) -> int:
    """Return the instructions in one function and what it calls."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [
                "valgrind",
                "--tool=callgrind",
                f"--toggle-collect={function}",
                f"--callgrind-out-file={folder}/out",
                *command,
            ],
            capture_output=True,
            text=True,
            check=True,
        )
    total = re.search(r"Collected : (\d+)", done.stderr)
    assert total, done.stderr
    return int(total[1])


def times(program: Path, repeats: int) -> tuple[float, float]:
    command = [program, str(repeats)]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    _, submit, retire = out.stdout.split()
    return float(submit), float(retire)


def count_instructions(programs: dict[str, Path]) -> None:
    """Print what a task costs its caller and the launcher."""
    spent = 0.0
    for side, function in (
        ("caller", "submit_all"),
        ("launcher", "npu::Executor::run_queued*"),
    ):
        n = {
            key: collected(function, program, str(COUNTED_REPEATS))
            / (COUNTED_REPEATS * CALLS)
            for key, program in programs.items()
        }
        if side == "caller":
            spent = n["with"] - n["without"]
        emit(
            case=f"instructions_{side}",
            unit="per task",
            statistics=round(n["with"] - n["without"], 2),
            **{key: round(value, 2) for key, value in n.items()},
        )
    # A minute: the interpreter and torch start in valgrind.
    add = instructions_of_add()
    emit(
        case=OF_ADD,
        unit="per call, on the caller",
        torch_add=round(add),
        statistics_percent=round(100 * spent / add, 3),
    )


@bench(runs=(15, 5, 1), repeats=(400, 100, 1), instructions=(1, 1, 0))
def main(runs: int, repeats: int, instructions: int, effort: Effort) -> None:
    """Print a JSON line per case; instructions=1 also counts, some minutes."""
    for tool in ("g++", "valgrind")[: 1 + instructions]:
        if shutil.which(tool) is None:
            sys.exit(f"{tool} is missing: apt-get install g++ valgrind")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_without(folder / "shadow")
        programs = {"with": folder / "with", "without": folder / "without"}
        build(programs["with"], None, effort)
        build(programs["without"], folder / "shadow", effort)
        if instructions:
            count_instructions(programs)
        else:
            emit(case=OF_ADD, not_measured="instructions were not to be counted")
        found: dict[str, list[tuple[float, float]]] = {key: [] for key in programs}
        for _ in range(runs):
            for key, program in programs.items():
                found[key].append(times(program, repeats))
    add = subprocess.run(
        [sys.executable, "-c", ADD], capture_output=True, text=True, check=True
    )
    add_ns = float(add.stdout)
    for i, what in enumerate(("submit", "until_retired")):
        p50 = {key: statistics.median(run[i] for run in found[key]) for key in found}
        least = {key: min(run[i] for run in found[key]) for key in found}
        added = p50["with"] - p50["without"]
        emit(
            case=f"ns_{what}",
            added_ns=round(added, 2),
            percent_of_torch_add=round(100 * added / add_ns, 2),
            torch_add_ns=round(add_ns, 1),
            **{f"{key}_ns": round(value, 2) for key, value in p50.items()},
            **{f"least_{key}_ns": round(value, 2) for key, value in least.items()},
        )


if __name__ == "__main__":
    main()
