"""Runs every benchmark: `make bench`; leaves out/bench.json and out/bench.md.

Each file runs several times, a process of its own each time; a figure is the
median of the runs, beside the least and the most. The first failure stops it
all; what is there by then is written, after each benchmark, and the page says
which did not run. tests/unit/test_benches.py runs each once.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import tables

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
CPP = ROOT / "build/core/bench/cpp"
# Counted instructions are the same each time.
DETERMINISTIC = ("sanitizer_off",)
# Half an hour of callgrind is nothing for a quick run.
TOO_LONG = {"--quick": DETERMINISTIC, "": ()}
TOOLS = {
    "sanitizer_off": ("valgrind",),
    "stats_cost": ("g++", "valgrind"),
    "serve_async": ("wrk",),
}


@dataclass(frozen=True, slots=True)
class Program:
    name: str
    command: tuple[str, ...]

    @property
    def shown(self) -> str:
        """What a user types."""
        return " ".join(
            "python" if word == sys.executable else word.removeprefix(f"{ROOT}/")
            for word in self.command
        )


def programs() -> list[Program]:
    """Return every file of bench/ that measures."""
    own = {"run_all", "tables", "models", "steps", "waiting"}
    found = [
        Program(path.stem, (sys.executable, str(path)))
        for path in sorted(HERE.glob("*.py"))
        if path.stem not in own and not path.stem.startswith("_")
    ]
    server = str(ROOT / "examples/serve_async.py")
    found.append(Program("serve_async", (sys.executable, server, "compare")))
    built = [CPP / path.stem for path in sorted((HERE / "cpp").glob("*_bench.cpp"))]
    found += [Program(path.name, (str(path),)) for path in built]
    return found


def run(program: Program, *flags: str) -> list[dict[str, Any]]:
    """Return what it prints; stop everything if it fails."""
    done = subprocess.run(
        [*program.command, *flags], capture_output=True, text=True, cwd=ROOT
    )
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        sys.exit(f"{program.shown} failed")
    return lines_of(done.stdout)


def lines_of(output: str) -> list[dict[str, Any]]:
    """Return the lines that a benchmark prints about itself and its cases."""
    lines = output.splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def is_figure(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def merged(runs: list[list[dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return the cases of all runs, by name: figures, labels, goals, missed."""
    by_case: dict[str, list[dict[str, Any]]] = {}
    for lines in runs:
        for line in lines:
            if "case" in line:
                by_case.setdefault(line["case"], []).append(line)
    cases = {}
    for name, found in by_case.items():
        if len(found) != len(runs):
            sys.exit(f"{name} is there {len(found)} times in {len(runs)} runs")
        first = found[0]
        figures = {}
        for key in first:
            values = [each[key] for each in found if is_figure(each.get(key))]
            if values:
                figures[key] = {
                    "median": statistics.median(values),
                    "least": min(values),
                    "most": max(values),
                }
        goals = first.get("goals", {})
        cases[name] = {
            "labels": {k: v for k, v in first.items() if isinstance(v, str)},
            "figures": figures,
            "goals": goals,
            "missed": [
                key
                for key, (relation, bound) in goals.items()
                if not tables.is_met(figures[key]["median"], relation, bound)
            ],
        }
    return cases


def without_tools(chosen: Iterable[Program]) -> dict[str, list[str]]:
    """Return the tools that are missing, by the program that needs them."""
    missing = {
        program.name: [t for t in TOOLS.get(program.name, ()) if not shutil.which(t)]
        for program in chosen
    }
    return {name: tools for name, tools in missing.items() if tools}


def write(result: dict[str, Any]) -> None:
    """Leave what there is so far."""
    result["load_after"] = round(os.getloadavg()[0], 2)
    result["not_run"] = sorted({p.name for p in programs()} - set(result["benches"]))
    out = ROOT / "out"
    out.mkdir(exist_ok=True)
    (out / "bench.json").write_text(json.dumps(result, indent=1) + "\n")
    (out / "bench.md").write_text(tables.everything(result))


def measure(chosen: list[Program], flag: str, runs: int) -> None:
    """Run them one after the other."""
    from _harness import machine  # imports torch

    result: dict[str, Any] = {
        "machine": machine(),
        "began": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        "effort": flag.removeprefix("--") or "full",
        "runs": runs,
        "load_before": round(os.getloadavg()[0], 2),
        "benches": {},
    }
    for program in chosen:
        began = time.monotonic()
        repeats = 1 if program.name in DETERMINISTIC else runs
        found = [run(program, *([flag] if flag else [])) for _ in range(repeats)]
        cases = merged(found)
        seconds = time.monotonic() - began
        result["benches"][program.name] = {
            "command": program.shown,
            "runs": repeats,
            "seconds": round(seconds),
            "cases": cases,
        }
        missed = sum(bool(case["missed"]) for case in cases.values())
        print(f"{program.name}: {seconds:.0f} s, {missed} missed", flush=True)
        write(result)


@click.command()
@click.option("--quick", is_flag=True, help="Some twenty minutes for three runs.")
@click.option("--runs", default=3, show_default=True, help="Of each file.")
@click.option("--only", default="", help="Files, by name, with commas.")
@click.option("--skip-missing", is_flag=True, help="Leave out what needs other tools.")
def main(quick: bool, runs: int, only: str, skip_missing: bool) -> None:
    """Run every benchmark, and stop at a failure."""
    flag = "--quick" if quick else ""
    wanted = set(only.split(",")) if only else None
    chosen = [p for p in programs() if wanted is None or p.name in wanted]
    chosen = [p for p in chosen if wanted or p.name not in TOO_LONG[flag]]
    missing = without_tools(chosen)
    if missing and not skip_missing:
        sys.exit(f"missing tools: {missing} (apt-get install, or --skip-missing)")
    for name, needed in missing.items():
        print(f"{name}: not run, {', '.join(needed)} missing")
    chosen = [p for p in chosen if p.name not in missing]
    measure(chosen, flag, runs)
    print("out/bench.json, out/bench.md")


if __name__ == "__main__":
    main()
