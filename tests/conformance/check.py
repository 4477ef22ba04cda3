"""Judges a conformance run: what failed, and what was not checked at all?"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

IMPOSSIBLE = Path(__file__).with_name("impossible.txt")
UNCHECKED = Path(__file__).with_name("unchecked.txt")
# Operators that a run over all of OpInfo checks, with torch 2.13.0 and scipy.
EXPECTED = 692

# What a run leaves: {"full": whether it was over all operators in all dtypes
# and variants, "ops": [{"name", "dtypes": {dtype: {variant: {outcome: count}}}}]}.
Run = dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """How many operators were checked and failed, and all that is wrong."""

    checked: int
    failed: int
    # Each in words, and what happened where an operator failed.
    complaints: list[tuple[str, str]]
    nothing_to_check: list[str]


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


def _counts(op: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, int]]]:
    for dtype, record in op["dtypes"].items():
        for variant, counts in record.items():
            if isinstance(counts, dict):
                yield dtype, variant, counts


def was_checked(op: dict[str, Any]) -> bool:
    """Return whether a result was compared; failing alike is no result."""
    return any(counts.get("pass") or counts.get("fail") for _, _, counts in _counts(op))


def failures(op: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield ("operator dtype variant", what happened) for each that failed."""
    if broken := op.get("crash"):
        yield f"{op['name']} all crash", broken
    for dtype, variant, counts in _counts(op):
        if counts.get("fail"):
            told = [e for e in op["dtypes"][dtype]["errors"] if f"[{variant}]" in e]
            yield f"{op['name']} {dtype} {variant}", "; ".join(told[:1])


def judge(
    run: Run,
    impossible: dict[str, str],
    unchecked: dict[str, str],
    expected: int = EXPECTED,
) -> Verdict:
    """Return what is wrong with a run."""
    ops = run["ops"]
    found = [(op["name"], *failure) for op in ops for failure in failures(op)]
    wrong = [
        (op, (name, text))
        for op, name, text in found
        if not any(re.fullmatch(pattern, name) for pattern in impossible)
    ]
    failed = {op for op, _ in wrong}
    complaints = [told for _, told in wrong]

    ran = [f"{op['name']} {d} {v}" for op in ops for d, v, _ in _counts(op)]
    ran += [f"{op['name']} all crash" for op in ops]
    for pattern in impossible:
        # Of an operator that did not run nothing is known.
        known = run["full"] or any(re.fullmatch(pattern, name) for name in ran)
        if known and not any(re.fullmatch(pattern, name) for _, name, _ in found):
            complaints.append((f"excuses nothing, remove it: {pattern}", ""))

    checked = {op["name"] for op in ops if was_checked(op)}
    nothing = {op["name"] for op in ops} - checked - {op for op, _, _ in found}
    for name in sorted(nothing - set(unchecked)):
        failed.add(name)
        complaints.append((f"nothing was compared: {name}", ""))
    stale = checked & set(unchecked)
    if run["full"]:
        stale |= set(unchecked) - nothing
    complaints += [
        (f"unchecked.txt lists {name}: remove it", "") for name in sorted(stale)
    ]
    if run["full"] and len(checked) != expected:
        told = f"{len(checked)} operators checked, expected {expected}"
        complaints.append((told, ""))
    if not checked:
        complaints.append(("nothing was checked", ""))
    return Verdict(len(checked), len(failed), complaints, sorted(nothing))


def judge_by_lists(run: Run) -> Verdict:
    return judge(
        run, read_list(IMPOSSIBLE.read_text()), read_list(UNCHECKED.read_text())
    )
