"""What the statistics cost a launch: `python bench/stats_cost.py`.

Builds the core again, from sources with every statistics write of the launch path
taken out, and compares both in cpp/submit_bench: instructions per task (valgrind
--tool=callgrind), on the caller and on the launcher, and nanoseconds, in alternating
runs. The share is of what launching `torch.add` on small tensors takes its caller. A
smoke run builds nothing, and compares what is there with itself.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import torch
from _harness import Effort, bench, emit, in_turns
from _peers import timed_block
from launch_profile import counted
from run_all import CPP, ROOT, lines_of

COUNTED = 100 * 2000  # tasks of a quick run of submit_bench.cpp
SIDES = {"caller": "submit_all", "launcher": "npu::Executor::run_queued*"}
OF_ADD = "instructions_of_torch_add"

# Per file: text, what it becomes without statistics.
COUNTER = """\
  counter.store(counter.load(std::memory_order_relaxed) + by,
                std::memory_order_relaxed);
"""
WITHOUT = {
    "csrc/stats/layout.h": {
        "kSamplePeriod = 16;": "kSamplePeriod = uint64_t{1} << 40;",
        COUNTER: "  (void)counter, (void)by;\n",
        "put(entry.name, reinterpret_cast<uint64_t>(name))": "(void)entry, (void)name",
        "put(entry.site, site | position << RecentTask::kTaskShift)": "(void)site",
    },
    "csrc/taskqueue/executor.h": {
        "stream_.block_->retired.store(position + 1, std::memory_order_relaxed);": "",
    },
}


def make_without(folder: Path) -> None:
    """Copy the core, changed; fail when the originals have changed."""
    for name in ("csrc", "npu_dispatch/include", "bench/cpp", "tests"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy(ROOT / "CMakeLists.txt", folder)
    for name, changes in WITHOUT.items():
        text = (ROOT / name).read_text()
        for old, new in changes.items():
            if text.count(old) != 1:
                sys.exit(f"{name} has changed: {old!r} is not there once")
            text = text.replace(old, new)
        (folder / name).write_text(text)


def built(folder: Path) -> Path:
    """Return submit_bench of those sources."""
    build = folder / "build"
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for arguments in (
        ("-S", folder, "-B", build, "-G", "Ninja", "-DNPU_CORE_ONLY=ON"),
        ("--build", build, "--target", "submit_bench"),
    ):
        command = ["cmake", *arguments]
        subprocess.run(command, env=env, check=True, stdout=sys.stderr)
    return build / "bench/cpp/submit_bench"


def collected(function: str, program: Path) -> float:
    """Return the instructions in one function and what it calls, per task."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [
                *("valgrind", "--tool=callgrind", f"--toggle-collect={function}"),
                *(f"--callgrind-out-file={folder}/out", program, "--quick", "--alone"),
            ],
            capture_output=True,
            text=True,
            check=True,
        )
    total = re.search(r"Collected : (\d+)", done.stderr)
    assert total, done.stderr
    return int(total[1]) / COUNTED


def count_instructions(programs: dict[str, Path]) -> None:
    """Print what a task costs its caller and the launcher."""
    added = {}
    for side, function in SIDES.items():
        n = {key: collected(function, program) for key, program in programs.items()}
        added[side] = n["with"] - n["without"]
        emit(
            case=f"instructions_{side}",
            statistics=round(added[side], 2),
            **{key: round(value, 2) for key, value in n.items()},
        )
    # A minute: the interpreter and torch start in valgrind.
    (add,) = counted(["add"])
    emit(
        case=OF_ADD,
        torch_add=round(add.total()),
        statistics_percent=round(100 * added["caller"] / add.total(), 3),
    )


def ns(program: Path, effort: Effort) -> dict[str, float]:
    """Return what a task takes until it is submitted, and until it is retired."""
    command = [program, f"--{effort.name.lower()}", "--alone"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    _, found = lines_of(done.stdout)
    return {"submit": found["ns"], "until_retired": found["retired_ns"]}


def add_ns(blocks: int) -> float:
    a, b = torch.ones(8, device="npu"), torch.ones(8, device="npu")
    add = partial(torch.add, a, b)
    times = [timed_block(add, 500).host for _ in range(blocks)]
    return 1e3 * statistics.median(times)


@bench(runs=(15, 5, 1))
def main(runs: int, effort: Effort) -> None:
    """Print a JSON line per case. Needs g++ and valgrind; takes some minutes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_without(folder)
        programs = dict.fromkeys(("with", "without"), CPP / "submit_bench")
        if effort is Effort.SMOKE:
            emit(case=OF_ADD, not_measured="a smoke run counts no instructions")
        else:
            programs["without"] = built(folder)
            count_instructions(programs)
        blocks = {key: partial(ns, each, effort) for key, each in programs.items()}
        found = in_turns(blocks, runs)
    add = add_ns(1 if effort is Effort.SMOKE else 200)
    for what in ("submit", "until_retired"):
        p50 = {key: statistics.median(r[what] for r in found[key]) for key in found}
        added = p50["with"] - p50["without"]
        emit(
            case=f"ns_{what}",
            added_ns=round(added, 2),
            percent_of_torch_add=round(100 * added / add, 2),
            torch_add_ns=round(add, 1),
            **{f"{key}_ns": round(value, 2) for key, value in p50.items()},
        )


if __name__ == "__main__":
    main()
