"""What a search did: a report of one shape for all of them, and how findings are kept.

out/NAME.json says when and of which commit it was, the seed, counts, and of each
finding what it is, the command that shows it again, and its file in
out/findings/NAME/.
"""

import hashlib
import importlib.metadata
import json
import os
import random
import re
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "out"


def new_seed() -> int:
    """Return a seed that no run had before; a search prints it."""
    return random.SystemRandom().getrandbits(32)


def commit() -> str:
    """Return the commit that is tried, with a + where files differ from it."""
    command = ["git", "describe", "--always", "--exclude=*", "--dirty=+"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip()


def about() -> dict[str, Any]:
    """Return what a run's figures depend on."""
    torch = importlib.metadata.version("torch")
    return {"commit": commit(), "cores": os.cpu_count(), "torch": torch}


def shown(path: Path) -> Path:
    """Return a path as short as it can be written here."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


@dataclass
class Report:
    """One run of a search; it is written when it ends, and whenever it is asked to."""

    name: str
    seed: Any = None
    # How many of what, in the order of the table.
    counts: dict[str, float] = field(default_factory=dict)
    # Those that the last line tells; all where none are named.
    told: Sequence[str] = ()
    # What this search alone has to say.
    details: dict[str, Any] = field(default_factory=dict)
    path: Path | None = None
    folder: Path | None = None
    findings: list[dict[str, str]] = field(default_factory=list)
    began: float = field(default_factory=time.time)

    def find(
        self, what: str, text: str = "", *, again: str = "", suffix: str = ".txt"
    ) -> Path:
        """Keep a finding as a file of its text, and print both.

        `again`: the command that shows it, in which FILE stands for the file.
        """
        folder = self.folder or OUT / "findings" / self.name
        words = "_".join(re.findall(r"[a-z0-9]+", what.lower()))[:60]
        number = hashlib.sha256(f"{what}{text}".encode()).hexdigest()[:6]
        path = folder / f"{words}_{number}{suffix}"
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(text or f"{what}\n")
        again = again.replace("FILE", str(shown(path)))
        self.findings.append({"what": what, "again": again, "file": str(shown(path))})
        print(f"finding: {what}", text, f"again: {again}", sep="\n", flush=True)
        return path

    @property
    def summary(self) -> str:
        rows = [(name, self.counts[name]) for name in self.told or self.counts]
        rows.append(("findings", len(self.findings)))
        return ", ".join(f"{name}: {count:,}" for name, count in rows)

    def as_json(self) -> dict[str, Any]:
        return {
            "search": self.name,
            "began": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(self.began)),
            "seconds": round(time.time() - self.began),
            **about(),
            "seed": self.seed,
            "counts": self.counts,
            "findings": self.findings,
            "summary": self.summary,
            "details": self.details,
        }

    def write(self) -> Path:
        path = self.path or OUT / f"{self.name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.as_json(), indent=1) + "\n")
        return path

    def end(self) -> int:
        """Write it, print a table and the last line; return the exit status."""
        print("| what | figure |\n|---|---|")
        for name, count in self.counts.items():
            print(f"| {name} | {count:,} |")
        print(f"{shown(self.write())}\n{self.summary}", flush=True)
        return bool(self.findings)
