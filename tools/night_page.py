"""The tables of docs/reliability.md: `make nightly-docs`, `fuzz-docs`, `torture-docs`.

docs/nightly.json is the out/nightly.json of the night that the page tells of,
docs/fuzz.json the out/fuzz.json of a run of the fuzzer, and docs/campaign.json the
runs of the campaign that are kept (campaign.py). Between
`<!-- figures NAME -->` and `<!-- end -->` stands what this makes of them, or that
there has been none; nobody types what is there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))
import campaign
import tables

ROOT = tables.ROOT
KEPT = ROOT / "docs" / "nightly.json"
FUZZED = ROOT / "docs" / "fuzz.json"
PAGE = ROOT / "docs" / "reliability.md"
Night = Mapping[str, Any]


def kept() -> Night:
    """Return the night that is kept, or one in which nothing was run."""
    if not KEPT.exists():
        return {"steps": [], "not_run": []}
    found: Night = json.loads(KEPT.read_text())
    return found


def about(night: Night) -> str:
    cores, when, commit = night["cores"], night["began"], night["commit"]
    return f"{cores} cores, {when} UTC, commit `{commit}`.\n"


def steps(night: Night) -> str:
    """Return the table of a night's steps, and what of it was not run."""
    if not night["steps"]:
        return "No night has been kept yet.\n"
    text = tables.line(["step", "seconds", "result", "figure"])
    text += tables.line(["---"] * 4)
    for step in night["steps"]:
        seconds = f"{step['seconds']:,.0f}"
        text += tables.line([step["step"], seconds, step["result"], step["figure"]])
    whole = sum(step["seconds"] for step in night["steps"])
    text += tables.line(["all", f"{whole:,.0f}", "", ""]) + "\n" + about(night)
    if night["not_run"]:
        names = ", ".join(f"`{name}`" for name in night["not_run"])
        text += f"This is not a whole night: {names} did not run.\n"
    return text


def fuzz(run: Mapping[str, Any] | None) -> str:
    """Return the table of a run of the fuzzer, and of the bugs planted for it."""
    if run is None:
        return "No run has been kept yet.\n"
    text = tables.line(["what", "figure"]) + tables.line(["---"] * 2)
    planted = run["planted"]
    found = sum(bug["found"] for bug in planted)
    rows = dict(run["figures"])
    rows |= {f"known: `{name}`": times for name, times in run["known"].items()}
    for name, value in rows.items():
        text += tables.line([name, f"{value:,}"])
    text += tables.line(["planted bugs found", f"{found} of {len(planted)}"]) + "\n"
    text += tables.line(["planted bug", "found", "after sequences"])
    text += tables.line(["---"] * 3)
    for bug in planted:
        told = "yes" if bug["found"] else "**no**"
        text += tables.line([f"`{bug['name']}`", told, f"{bug['sequences']:,}"])
    seeds = ", ".join(map(str, run["seeds"]))
    about = f"{run['cores']} cores, {run['ended']} UTC, commit `{run['commit']}`"
    return f"{text}\n{about}, seeds {seeds}.\n"


def fuzzed() -> Mapping[str, Any] | None:
    """Return the run of the fuzzer that is kept, if any."""
    return json.loads(FUZZED.read_text()) if FUZZED.exists() else None


BLOCKS = {
    "nightly": lambda: steps(kept()),
    "campaign": lambda: campaign.table(campaign.kept()),
    "fuzz": lambda: fuzz(fuzzed()),
}


def page(text: str) -> str:
    return tables.filled(text, lambda name: BLOCKS[name]())


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
