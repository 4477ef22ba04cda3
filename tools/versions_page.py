"""The table of docs/versions.md: `make versions-docs`, after `make versions`.

`make versions` leaves a file of JUnit's form for each pair of torch and CPython that
it has run the tests with: out/versions/torch-T-python-P.xml. What they say is kept in
docs/versions.json, with the commit; a pair that was not run again keeps what an
earlier run said. Between `<!-- figures versions -->` and `<!-- end -->` of the page
stands what this makes of it, and nobody types what is there.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypedDict
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))
import tables

ROOT = tables.ROOT
RUNS = ROOT / "out" / "versions"
KEPT = ROOT / "docs" / "versions.json"
PAGE = ROOT / "docs" / "versions.md"
HEADS = ["torch", "CPython", "passed", "failed", "skipped", "date", "commit"]


class Run(TypedDict):
    """What the Python tests said with one torch and one CPython."""

    torch: str
    python: str
    passed: int
    failed: int
    skipped: int
    date: str
    commit: str


def read(path: Path, commit: str) -> Run:
    """Return what a file of RUNS says; ValueError for another name."""
    name = re.fullmatch(r"torch-(.+)-python-?(\d+\.\d+)", path.stem)
    if name is None:
        raise ValueError(f"{path}: expected torch-VERSION-python-VERSION.xml")
    suites = list(ElementTree.parse(path).getroot().iter("testsuite"))
    count = {
        key: sum(int(suite.get(key, 0)) for suite in suites)
        for key in ("tests", "failures", "errors", "skipped")
    }
    failed = count["failures"] + count["errors"]
    return Run(
        torch=name[1],
        python=name[2],
        passed=count["tests"] - failed - count["skipped"],
        failed=failed,
        skipped=count["skipped"],
        date=suites[0].get("timestamp", "")[:10],
        commit=commit,
    )


def kept() -> list[Run]:
    found: list[Run] = json.loads(KEPT.read_text())
    return found


def merged(old: Sequence[Run], new: Sequence[Run]) -> list[Run]:
    """Return all runs, of each pair the newest, in the order of versions."""
    by_pair = {(run["torch"], run["python"]): run for run in (*old, *new)}

    def number(pair: tuple[str, str]) -> list[list[int]]:
        return [[int(n) for n in re.findall(r"\d+", version)] for version in pair]

    return [by_pair[pair] for pair in sorted(by_pair, key=number)]


def rows(runs: Sequence[Run]) -> Iterator[list[str]]:
    for run in runs:
        counts = (f"{run[key]:,}" for key in ("passed", "failed", "skipped"))
        yield [run["torch"], run["python"], *counts, run["date"], f"`{run['commit']}`"]


def table(runs: Sequence[Run]) -> str:
    head = tables.line(HEADS) + tables.line(["---"] * len(HEADS))
    return head + "".join(tables.line(row) for row in rows(runs))


def page(text: str, runs: Sequence[Run]) -> str:
    return tables.filled(text, lambda name: {"versions": table}[name](runs))


def main() -> None:
    commit = subprocess.run(
        ["git", "rev-parse", "--short=10", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    old = kept() if KEPT.exists() else []
    runs = merged(old, [read(path, commit) for path in sorted(RUNS.glob("*.xml"))])
    KEPT.write_text(json.dumps(runs, indent=1) + "\n")
    PAGE.write_text(page(PAGE.read_text(), runs))


if __name__ == "__main__":
    main()
