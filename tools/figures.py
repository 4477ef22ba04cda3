"""Which fact says best what a step of the gate or of a night did?

A search leaves a report, out/STEP.json, whose summary it is; one that is older than
the step is of another run, and says nothing. Of other steps it is in the last lines of
pytest and ctest.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

OUT = Path(__file__).resolve().parents[1] / "out"
SEARCHES = ("conformance", "torture", "mutants", "compatibility", "judges")

# "= 2 failed, 810 passed, 1 skipped in 61.20s (0:01:01) ="
PYTEST = re.compile(r"^[= ]*(\d+ [a-z]+(?:, \d+ [a-z]+)*) in \d+\.\d+s.*$", re.M)
# "97% tests passed, 2 tests failed out of 75"
CTEST = re.compile(r"tests passed, (\d+) tests failed out of (\d+)$", re.M)
# "out/coverage/cpp.txt:TOTAL   38664   17564   45%"
COVERAGE = re.compile(r"coverage/(\w+)\.txt:TOTAL .* (\d+%)$", re.M)


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
    if reached := COVERAGE.findall(log):
        told = ", ".join(f"{percent} of {what}" for what, percent in reached)
        parts.append(f"lines reached: {told}")
    return "; ".join(parts)


def find(step: str, log: str, began: float, out: Path = OUT) -> str:
    """Return the fact, or nothing where the step left none."""
    if step not in SEARCHES:
        return of_tests(log)
    report = out / f"{step}.json"
    is_new = report.exists() and report.stat().st_mtime >= began
    return str(json.loads(report.read_text())["summary"]) if is_new else ""
