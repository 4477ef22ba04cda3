"""Runs the matrix in an environment of its own and writes docs/tested_with.md.

    python -m tests.compatibility.run [--only PROGRAM...] [--no-install]

Each program runs twice, on cpu and on npu, in processes of its own. The status is
1 when a row that worked before does not.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import math
import subprocess
import sys
from pathlib import Path

from tests.compatibility.matrix import MATRIX, PROGRAMS, Row
from tests.search import children
from tests.search.report import ROOT, Report, commit

sys.path.insert(0, str(ROOT / "tools"))
import libraries
import pages

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.tsv"
APART = libraries.VENV.parent / "apart"
FIELDS = ("library", "version", "program", "what", "result", "since", "run", "commit")
WORKS = "works"
SECONDS = 900  # the first of DeepSpeed's programs has kernels for cpu compiled
# Of one program: it ended with a failure, too late, or without its last line.
FAILURES = (RuntimeError, subprocess.TimeoutExpired, ValueError, LookupError)

RUNNER = """
import importlib, importlib.metadata, json, sys
library, program, device, folder, ranks, unchanged = sys.argv[1:]
sys.path.insert(0, folder)
import torch, two_ranks, written_for_cuda
import npu_dispatch
if unchanged:
    figures = written_for_cuda.figures_of(program, device, unchanged)
elif (options := json.loads(ranks)) is None:
    figures = two_ranks.seeded(program, device)
else:
    figures = two_ranks.figures_of(program, device, **options)
version = importlib.metadata.version(library)
print(json.dumps({"figures": [float(f) for f in figures], "version": version}))
"""


def install(rows: tuple[Row, ...]) -> None:
    apart = {name for row in rows for name in row.apart}
    named = {name for row in rows for name in (row.library, *row.needs)}
    libraries.install(named - apart)
    if apart:
        options = ("-q", "--no-deps", "--upgrade", "--target", APART)
        command = (libraries.PYTHON, "-m", "pip", "install", *options)
        subprocess.run([*command, *sorted(apart)], check=True)


def figures(row: Row, device: str) -> tuple[list[float], str]:
    """Return what the program finds on the device, and the library's version."""
    env = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    env["NPU_DISPATCH_TORCH_NPU_ALIAS"] = str(int(row.alias and device == "npu"))
    if row.apart:
        env["PYTHONPATH"] = str(APART)
    command = [libraries.PYTHON, "-W", "ignore", "-c", RUNNER]
    command += [row.library, row.module, device, PROGRAMS]
    command += [json.dumps(row.ranks), row.unchanged]
    ended = children.run(command, SECONDS, cwd=ROOT / "out", **env)
    if ended.returncode:
        raise RuntimeError((ended.stderr.strip().splitlines() or ["no output"])[-1])
    told = json.loads(ended.stdout.splitlines()[-1])
    return told["figures"], told["version"]


def outcome(row: Row) -> tuple[str, str]:
    """Return the library's version and what came of the row."""
    try:
        cpu, version = figures(row, "cpu")
    except FAILURES as error:
        return "", f"not tested: on cpu: {error}"[:160]
    try:
        npu, _ = figures(row, "npu")
    except FAILURES as error:
        return version, f"fails: {error}"[:160]
    if len(npu) != len(cpu) or not cpu:
        return version, f"gives {len(npu)} figures where cpu gives {len(cpu)}"
    apart = max(abs(a - b) / max(abs(a), 1e-6) for a, b in zip(cpu, npu, strict=True))
    if not all(map(math.isfinite, cpu + npu)) or apart > row.relative:
        return version, f"differs from cpu by {apart:.1e}"
    return version, WORKS


def read_results() -> dict[str, dict[str, str]]:
    if not RESULTS.exists():
        return {}
    with RESULTS.open() as file:
        rows = csv.DictReader(file, delimiter="\t")
        return {r["program"]: dict.fromkeys(FIELDS, "") | r for r in rows}


def write(results: dict[str, dict[str, str]]) -> None:
    """Write the results, each where it was, and new ones behind them."""
    with RESULTS.open("w") as file:
        table = csv.DictWriter(file, FIELDS, delimiter="\t", lineterminator="\n")
        table.writeheader()
        table.writerows(results.values())
    pages.write()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], metavar="PROGRAM")
    parser.add_argument("--no-install", action="store_true")
    options = parser.parse_args()
    chosen = tuple(r for r in MATRIX if not options.only or r.program in options.only)
    if not options.no_install:
        install(chosen)
    report = Report("compatibility", told=(WORKS, "tried"))
    report.counts = dict.fromkeys(report.told, 0)
    results, tried = read_results(), commit()
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    for row in chosen:
        version, result = outcome(row)
        before = results.get(row.program, {})
        same = before.get("result") == result
        results[row.program] = {
            "library": row.library,
            "version": version or before.get("version", ""),
            "program": row.program,
            "what": row.what,
            "result": result,
            "since": before["since"] if same else today,
            "run": today,
            "commit": tried,
        }
        report.counts["tried"] += 1
        report.counts[WORKS] += result == WORKS
        print(f"{row.library} {version}: {row.program}: {result}", flush=True)
        if before.get("result") == WORKS != result:
            again = f"python -m tests.compatibility.run --only {row.program}"
            report.find(f"{row.program}: {result}", again=again)
        write(results)
    report.details = {"results": results}
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
