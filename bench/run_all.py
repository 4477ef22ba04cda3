"""Runs every benchmark: `make bench`; leaves out/bench.json and out/bench.md.

Each file runs several times, a process of its own each time, with all its repetitions;
a figure is the median of the runs, beside the least and the most. What is there is
written after each file, and kept: the next `make bench` of the same sources on the same
machine runs only those files that failed or did not run. A file that fails stops no
other. tests/unit/test_benches.py runs each once.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import shutil
import statistics
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import tables
from _load import Load

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
import libraries

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
CPP = ROOT / "build/core/bench/cpp"
GOALS = tomllib.loads((HERE / "goals.toml").read_text())
# Counts instructions for half an hour, the same each time: it runs if it is named.
BY_NAME_ONLY = ("launch_profile",)
# What README.md shows has all runs that are asked for; other files have fewer.
FRONT = {row.bench for name in ("front", "users") for row in tables.TABLES[name][1]}
RUNS_OF_OTHERS = 2
MOST_S = 1200  # of a run
TOOLS = {
    "launch_profile": ("g++", "valgrind"),
    "stats_cost": ("g++", "valgrind"),
    "serve_async": ("wrk",),
}
# The modules that a file needs beside this package's own.
LIBRARIES = {
    "rl": ("gymnasium", "stable_baselines3"),
    "trainer": ("accelerate", "transformers"),
}
# What a figure depends on. Tables change no figure.
SOURCES = ("csrc", "npu_dispatch", "bench", "examples")
WRITERS = ("run_all.py", "tables.py", "_errors.py")
SUFFIXES = (".py", ".cpp", ".h", ".cmake", ".in", ".txt", ".pyi")


@dataclass(frozen=True, slots=True)
class Program:
    name: str
    command: tuple[str, ...]

    @property
    def shown(self) -> str:
        """What a user types."""
        return " ".join(
            "python"
            if word in (sys.executable, str(libraries.PYTHON))
            else word.removeprefix(f"{ROOT}/")
            for word in self.command
        )


def programs() -> list[Program]:
    """Return every file of bench/ that measures."""
    own = {"run_all", "tables", "models", "training", "waiting"}
    files = (path for path in sorted(HERE.glob("[!_]*.py")) if path.stem not in own)
    found = [
        # Where its libraries are.
        Program(path.stem, (python or sys.executable, str(path)))
        for path in files
        for python in [libraries.python_with(*LIBRARIES.get(path.stem, ()))]
    ]
    server = str(ROOT / "examples/serve_async.py")
    found.append(Program("serve_async", (sys.executable, server, "compare")))
    built = [CPP / path.stem for path in sorted((HERE / "cpp").glob("*_bench.cpp"))]
    found += [Program(path.name, (str(path),)) for path in built]
    return found


class FailedError(Exception):
    """A benchmark did not end, or not well."""


def run(program: Program) -> list[dict[str, Any]]:
    """Return what it prints. Raises FailedError."""
    try:
        done = subprocess.run(
            program.command,
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=MOST_S,
        )
    except subprocess.TimeoutExpired:
        raise FailedError(f"{program.shown} takes more than {MOST_S} s") from None
    except OSError as error:  # it was not built
        raise FailedError(f"{program.shown} cannot start: {error}") from None
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        raise FailedError(f"{program.shown} failed, status {done.returncode}")
    return lines_of(done.stdout)


def lines_of(output: str) -> list[dict[str, Any]]:
    """Return the lines that a benchmark prints about itself and its cases."""
    lines = output.splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def goal_of(goals: Mapping[str, str], case: str, field: str) -> list[Any] | None:
    """Return the relation and the bound that a figure is to reach; None: neither."""
    for pattern, goal in goals.items():
        if fnmatch.fnmatchcase(f"{case}.{field}", pattern):
            relation, bound = goal.split()
            return [relation, float(bound)]
    return None


def merged(
    runs: list[list[dict[str, Any]]], goals: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """Return the cases of all runs, by name: figures, labels, goals, short.

    `goals`: those of one bench in goals.toml.
    """
    by_case: dict[str, list[dict[str, Any]]] = {}
    for lines in runs:
        for line in lines:
            if "case" in line:
                by_case.setdefault(line["case"], []).append(line)
    cases = {}
    for name, found in by_case.items():
        if len(found) != len(runs):
            raise FailedError(f"{name} is there {len(found)} times in {len(runs)} runs")
        first = found[0]
        figures = {}
        for key in first:
            values = [
                each[key] for each in found if type(each.get(key)) in (int, float)
            ]
            if values:
                figures[key] = {
                    "median": statistics.median(values),
                    "least": min(values),
                    "most": max(values),
                }
        wanted = {f: g for f in figures if (g := goal_of(goals, name, f))}
        cases[name] = {
            "labels": {k: v for k, v in first.items() if isinstance(v, str)},
            "figures": figures,
            "goals": wanted,
            "short": [
                key
                for key, (relation, bound) in wanted.items()
                if not tables.is_met(figures[key]["median"], relation, bound)
            ],
        }
    return cases


def without_needs(chosen: Iterable[Program]) -> dict[str, list[str]]:
    """Return the tools and libraries that are missing, by the program's name."""
    missing = {
        program.name: [t for t in TOOLS.get(program.name, ()) if not shutil.which(t)]
        for program in chosen
    }
    for name, needed in LIBRARIES.items():
        if name in missing and libraries.python_with(*needed) is None:
            missing[name] += needed
    return {name: needs for name, needs in missing.items() if needs}


def digest() -> str:
    """Return what tells the sources that are measured from others."""
    found = hashlib.sha256()
    paths = (path for name in SOURCES for path in (ROOT / name).rglob("*"))
    for path in sorted(paths):
        if path.suffix in SUFFIXES and path.name not in WRITERS:
            found.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return found.hexdigest()[:16]


def kept(path: Path, begun: dict[str, Any]) -> dict[str, Any] | None:
    """Return an earlier result, if it is of the sources and the machine of this one."""
    result: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    same = ("machine", "sources", "runs")
    return result if all(result.get(key) == begun[key] for key in same) else None


def write(result: dict[str, Any], out: Path) -> None:
    """Leave what there is so far."""
    result["not_run"] = sorted({p.name for p in programs()} - set(result["benches"]))
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n")
    out.with_suffix(".md").write_text(tables.everything(result))


def measured(program: Program, runs: int) -> dict[str, Any]:
    """Return the figures of a file, and how much others had of the machine."""
    load = Load()
    began = time.gmtime()
    cases = merged([run(program) for _ in range(runs)], GOALS.get(program.name, {}))
    return {
        "command": program.shown,
        "runs": runs,
        "began": time.strftime("%Y-%m-%d %H:%M", began),
        "seconds": round(load.seconds()),
        "others": round(load.of_others(), 3),
        "cases": cases,
    }


def runs_of(name: str, runs: int) -> int:
    """Return how often a file runs where README.md's run so often."""
    return runs if name in FRONT else min(runs, RUNS_OF_OTHERS)


def measure(
    chosen: list[Program], result: dict[str, Any], out: Path, runs: int
) -> list[str]:
    """Run them one after the other; return what is wrong with those that failed."""
    failed = []
    for program in chosen:
        # One that fails now has no figures of before.
        result["benches"].pop(program.name, None)
        try:
            found = measured(program, runs_of(program.name, runs))
        except FailedError as error:
            failed.append(str(error))
            print(error, flush=True)
        else:
            result["benches"][program.name] = found
            print(f"{program.name}: {found['seconds']} s", flush=True)
        write(result, out)
    return failed


def begun(runs: int) -> dict[str, Any]:
    """Return a result without figures."""
    from _harness import machine  # imports torch

    about = machine()
    del about["load"]  # is measured while each file runs
    return {"machine": about, "sources": digest(), "runs": runs, "benches": {}}


@click.command()
@click.option(
    "--runs", default=tables.FEWEST_RUNS, show_default=True, help="Of README's."
)
@click.option("--only", default="", help="Files, by name, with commas: run again.")
@click.option("--fresh", is_flag=True, help="Keep nothing of earlier runs.")
def main(runs: int, only: str, fresh: bool) -> None:
    """Run every benchmark that has not run yet, and for which nothing is missing."""
    out = ROOT / "out" / "bench.json"
    result = begun(runs)
    if not fresh and (before := kept(out, result)):
        result = before
    elif out.exists():
        print("nothing is kept: sources, machine or number of runs have changed")
    everything = {program.name: program for program in programs()}
    done = [*BY_NAME_ONLY, *result["benches"]]
    named = only.split(",") if only else [n for n in everything if n not in done]
    if unknown := {*named} - {*everything}:
        sys.exit(f"no benchmark is named {', '.join(sorted(unknown))}")
    missing = without_needs(everything[name] for name in named)
    for name, needed in missing.items():
        print(f"{name}: not run, {', '.join(needed)} missing: bench/README.md")
    chosen = [everything[name] for name in named if name not in missing]
    failed = measure(chosen, result, out, runs)
    print(f"{out.relative_to(ROOT)}, {out.with_suffix('.md').relative_to(ROOT)}")
    if failed:
        sys.exit("; ".join(failed))


if __name__ == "__main__":
    main()
