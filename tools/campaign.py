"""The runs of the campaign that are kept: `make torture-docs`.

docs/campaign.json is a list of them, oldest first; this adds that of
out/torture.json. docs/reliability.md shows their sums (night_page.py), so that a
long campaign can be cut into several runs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))
import tables

NEW = tables.ROOT / "out" / "torture.json"
KEPT = tables.ROOT / "docs" / "campaign.json"
# What is kept of a run. Its findings are long, and are mended before it is kept.
FIELDS = ("began", "minutes", "commit", "cores", "torch", "seeds", "figures")
# The worst of a run, which the worst of all runs is, and not their sum.
WORST = "/livez, slowest, ms"
TROUBLE = ("hangs", "tasks lost", "wrong, in all")
Run = Mapping[str, Any]


def kept(path: Path = KEPT) -> list[Run]:
    """Return the runs that are kept."""
    found: list[Run] = json.loads(path.read_text()) if path.exists() else []
    return found


def merged(runs: Sequence[Run], new: Run) -> list[Run]:
    """Return the runs with a new one; the same run again takes its own place."""
    others = [run for run in runs if run["began"] != new["began"]]
    whole = [*others, {name: new[name] for name in FIELDS}]
    return sorted(whole, key=lambda run: str(run["began"]))


def sums(runs: Sequence[Run]) -> dict[str, float]:
    """Return the figures of all runs together."""
    found: dict[str, float] = {}
    for run in runs:
        for name, value in run["figures"].items():
            before = found.get(name, 0)
            found[name] = max(before, value) if name == WORST else before + value
    return found


def table(runs: Sequence[Run]) -> str:
    """Return the table of the sums, and that of the runs."""
    if not runs:
        return "No campaign has been kept yet.\n"
    text = tables.line(["what", "figure"]) + tables.line(["---"] * 2)
    for name, value in sums(runs).items():
        text += tables.line([name, f"{value:,}"])
    minutes = sum(run["minutes"] for run in runs)
    text += tables.line(["minutes, in all", f"{minutes:,.0f}"]) + "\n"
    heads = ["began, UTC", "minutes", "commit", "cores", "torch", *TROUBLE, "seeds"]
    text += tables.line(heads) + tables.line(["---"] * len(heads))
    for run in runs:
        seeds = ", ".join(f"{name} {seed}" for name, seed in run["seeds"].items())
        troubles = [f"{run['figures'][name]:,}" for name in TROUBLE]
        about = [f"{run['minutes']:,.0f}", f"`{run['commit']}`", str(run["cores"])]
        row = [run["began"], *about, run["torch"], *troubles, seeds]
        text += tables.line(row)
    return text


if __name__ == "__main__":
    runs = merged(kept(), json.loads(NEW.read_text()))
    KEPT.write_text(json.dumps(runs, indent=1) + "\n")
