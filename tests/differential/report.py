"""What a run of the fuzzer has done, for docs/reliability.md: out/fuzz.json.

`make fuzz-docs` keeps it as docs/fuzz.json and makes the page's table of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATH = ROOT / "out" / "fuzz.json"


@dataclass(frozen=True)
class Planted:
    """A bug that was planted, and the sequences and seconds until it was found."""

    name: str
    found: bool
    sequences: int
    seconds: float


def write(
    figures: Mapping[str, int],
    known: Mapping[str, int],
    planted: list[Planted],
    seeds: list[int],
    path: Path = PATH,
) -> None:
    """Write what a run did; it ends now."""
    found = [asdict(bug) for bug in planted]
    whole = {
        "ended": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        "commit": _commit(),
        "cores": os.cpu_count(),
        "seeds": seeds,
        "figures": figures,
        "known": known,
        "planted": found,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(whole, indent=1) + "\n")


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()
