"""docs/judges.md, from docs/judges.json: `python -m tests.judges.page`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from tests.judges import reasons

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "docs" / "judges.json"
PAGE = ROOT / "docs" / "judges.md"
GOAL = 0.99
PARTS = 3

HEAD = """# What others' test suites say

Written by `make judges`, which installs suites that nobody here wrote, runs each on
`npu`, and runs what fails there on `cpu`, too. A test that is not right on `cpu` either
says nothing about this device and is counted apart. The others are the judgement: the
goal is 99 % right, and no crash and no hang. A late error of one test is cleared before
the next (`pytest --npu-clear-errors`). At night a third of the tests runs, another each
night, and a failure that is not listed here is red. `tests/judges` says how each suite
is run.

"""


def row(*cells: object) -> str:
    return (
        f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in cells)} |\n"
    )


def head(*columns: str) -> str:
    return row(*columns) + row(*["---"] * len(columns))


def verdict(counts: dict[str, int]) -> str:
    """Return the part that is right of what cpu does right, and if it is too small."""
    bad = counts["failed"] + counts["crashed"] + counts["hung"]
    judged = counts["passed"] + bad
    if not judged:
        return "not run yet"
    missed = counts["passed"] < GOAL * judged
    return f"{100 * counts['passed'] / judged:.2f} %{' (missed)' if missed else ''}"


def counts_of(suite: dict[str, Any]) -> dict[str, int]:
    """Return the sums of a suite's parts."""
    counts: Counter[str] = Counter()
    for part in suite["parts"].values():
        counts.update(part["counts"])
    return counts


def table(kept: dict[str, Any]) -> str:
    text = head(
        *("suite", "from", "version", "passed", "failed", "crashed", "hung"),
        *("right", "not right on cpu either", "not applicable"),
    )
    for name, suite in kept.items():
        counts = counts_of(suite)
        text += row(
            name,
            suite["source"],
            suite["version"],
            *(f"{counts[key]:,}" for key in ("passed", "failed", "crashed", "hung")),
            verdict(counts),
            f"{counts['not right on cpu either']:,}",
            f"{counts['skipped']:,}",
        )
    return text


def parts(suite: dict[str, Any]) -> str:
    """Return when, and of which commit, each third of a suite was run."""
    text = head("third", "ended (UTC)", "commit", "torch", "cores")
    for part in range(PARTS):
        if found := suite["parts"].get(str(part)):
            about = (found["ended"], f"`{found['commit']}`", found["torch"])
            text += row(part, *about, found["cores"])
        else:
            text += row(part, "not run yet", "", "", "")
    return text


def classes(suite: dict[str, Any]) -> str:
    """Return the classes of a suite's failures, with an example of each."""
    failures = [f for part in suite["parts"].values() for f in part["failures"]]
    if not suite["parts"]:
        return ""
    if not failures:
        return "Nothing fails on npu alone.\n"
    why_of = {f["test"]: reasons.reason(f["test"], f["message"]) for f in failures}
    text = "What fails on npu alone:\n\n" + head("tests", "why", "one of them")
    for why, number in Counter(why_of.values()).most_common():
        first = next(test for test, its in why_of.items() if its == why)
        text += row(f"{number:,}", why, f"`{first.rpartition('/')[2]}`")
    return text


def page(kept: dict[str, Any]) -> str:
    text = HEAD + table(kept)
    for name, suite in kept.items():
        text += f"\n## {name}\n\n{parts(suite)}\n{classes(suite)}"
    return text


if __name__ == "__main__":
    PAGE.write_text(page(json.loads(KEPT.read_text())))
