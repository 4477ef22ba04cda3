"""Which fact says best what a step of the gate or of a night did?

It comes from what the step leaves anyway: the last lines of pytest, ctest and the
conformance tests, and the results that the campaign, the mutants and the libraries
write. A file that is older than the step is of another run, and says nothing.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TORTURE = ROOT / "out" / "torture.json"
MUTANTS = ROOT / "build" / "mutants" / "results.json"
LIBRARIES = ROOT / "tests" / "compatibility" / "results.tsv"

# "= 2 failed, 810 passed, 1 skipped in 61.20s (0:01:01) ="
PYTEST = re.compile(r"^[= ]*(\d+ [a-z]+(?:, \d+ [a-z]+)*) in \d+\.\d+s.*$", re.M)
OPERATORS = re.compile(r"^\d+ operators checked, \d+ failed$", re.M)
# "97% tests passed, 2 tests failed out of 75"
CTEST = re.compile(r"tests passed, (\d+) tests failed out of (\d+)$", re.M)


def of_tests(log: str) -> str:
    """Return the sums of all runs of ctest and of pytest."""
    parts = []
    if runs := CTEST.findall(log):
        failed, whole = (sum(int(run[i]) for run in runs) for i in range(2))
        parts.append(f"ctest: {whole - failed:,} of {whole:,}")
    counts: Counter[str] = Counter()
    for line in PYTEST.findall(log):
        for part in line.split(", "):
            number, word = part.split(" ")
            counts[word.removesuffix("s")] += int(number)
    shown = ("passed", "failed", "error", "skipped")
    if found := [f"{counts[word]:,} {word}" for word in shown if counts[word]]:
        parts.append(f"pytest: {', '.join(found)}")
    return "; ".join(parts)


def of_operators(log: str) -> str:
    found: list[str] = OPERATORS.findall(log)
    return found[-1] if found else ""


def of_torture(text: str) -> str:
    found: dict[str, Any] = json.loads(text)["figures"]
    shown = ("faults injected", "wrong, in all", "hangs")
    return ", ".join(f"{name}: {found[name]:,}" for name in shown)


def of_mutants(text: str) -> str:
    planted = [row["by"] for row in json.loads(text) if row["by"] != "-"]
    return f"{sum(map(bool, planted))} of {len(planted)} noticed"


def of_libraries(text: str) -> str:
    rows = list(csv.DictReader(text.splitlines(), delimiter="\t"))
    works = sum(row["result"] == "works" for row in rows)
    return f"{works} of {len(rows)} give cpu's figures"


OF_FILES: dict[str, tuple[Path, Callable[[str], str]]] = {
    "torture": (TORTURE, of_torture),
    "mutants": (MUTANTS, of_mutants),
    "compatibility": (LIBRARIES, of_libraries),
}


def find(step: str, log: str, began: float) -> str:
    """Return the fact, or nothing where the step left none."""
    if step in OF_FILES:
        path, read = OF_FILES[step]
        is_new = path.exists() and path.stat().st_mtime >= began
        return read(path.read_text()) if is_new else ""
    return of_operators(log) if step == "conformance" else of_tests(log)
