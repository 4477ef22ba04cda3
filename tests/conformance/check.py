"""Compare a run over OpInfo with the list of what is impossible.

check.py RESULTS.json...: exit status 1 when an operator fails that is not in
impossible.txt, or when an entry excuses nothing.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

LIST = Path(__file__).with_name("impossible.txt")
MINIMUM = 600  # operators; fewer have not been run


def read_list(text: str) -> dict[str, str]:
    """Return {pattern: reason}; ValueError for a line without a reason."""
    entries = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        pattern, found, reason = line.partition(" = ")
        if not found or not reason.strip():
            raise ValueError(f"no reason given: {line!r}; write PATTERN = REASON")
        entries[pattern.strip()] = reason.strip()
    return entries


def failures(run: dict) -> Iterator[tuple[str, str]]:
    """Yield ("operator dtype check", what happened) for each that failed."""
    for op in run["ops"]:
        if broken := op.get("crash") or op.get("harness_error"):
            yield f"{op['name']} all crash", broken
        for dtype, record in op["dtypes"].items():
            for check, counts in record.items():
                if isinstance(counts, dict) and (
                    counts.get("fail") or counts.get("unsupported")
                ):
                    told = [e for e in record["errors"] if f"[{check}]" in e]
                    yield f"{op['name']} {dtype} {check}", "; ".join(told[:1])


def judge(runs: list[dict], entries: dict[str, str]) -> list[str]:
    """Return what is wrong, one line each."""
    failed = [f for run in runs for f in failures(run)]
    wrong = [
        f"fails: {name}: {text[:300]}"
        for name, text in failed
        if not any(re.fullmatch(pattern, name) for pattern in entries)
    ]
    wrong += [
        f"excuses nothing, remove it: {pattern}"
        for pattern in entries
        if not any(re.fullmatch(pattern, name) for name, _ in failed)
    ]
    return wrong


def main() -> int:
    runs = [json.loads(Path(path).read_text()) for path in sys.argv[1:]]
    checked = sum(len(run["ops"]) for run in runs)
    wrong = judge(runs, read_list(LIST.read_text()))
    if checked < MINIMUM:
        wrong.append(f"only {checked} operators were run, expected {MINIMUM} or more")
    print("\n".join([*wrong, f"{checked} operators, {len(wrong)} complaints"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
