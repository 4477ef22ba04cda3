"""Random programs on cpu and npu, until the time is up or something differs.

    python -m tests.differential.fuzz --minutes 60
    python -m tests.differential.fuzz --seed 7 --rounds 1     # one of them again

A round is a process of its own with a seed of its own. What it finds is made
shorter and written to out/findings/fuzz/, as a program that one command, which is
printed, keeps in the corpus. Exit status 1: something new was found.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import json
import math
import os
import re
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.differential import corpus, generate, known, planted
from tests.differential.check import against, check, prepare, warm
from tests.differential.compare import Difference
from tests.differential.reduce import Programs, shorter
from tests.search.children import Died, call, work_through
from tests.search.report import Report, new_seed

SEQUENCES = 400  # of a round
PER_ROUND = 12  # findings
SECONDS_PLANTED = 60
PATIENCE = 600  # seconds in which a round ends, on however slow a machine
JOBS = os.cpu_count() or 1
AGAIN = "python -m tests.differential.fuzz"
KEEP = "python -m tests.differential.corpus keep FILE"


@dataclass
class Round:
    """What one process did."""

    sequences: int = 0
    steps: int = 0
    errors: int = 0
    known: collections.Counter = field(default_factory=collections.Counter)
    # Of each finding: its number among the sequences.
    found: list[tuple[int, Difference | Died]] = field(default_factory=list)


class Journal:
    """The programs of a round, in a file: they outlive its process."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a")

    def start(self) -> None:
        self._file.write("\n")

    def note(self, step: str) -> None:
        """Write a step before it runs, so that one that kills is the last one."""
        self._file.write(json.dumps(step) + "\n")
        self._file.flush()

    @staticmethod
    def programs(path: Path) -> Programs:
        blocks = path.read_text().split("\n\n") if path.exists() else []
        return [
            [json.loads(line) for line in block.splitlines() if line]
            for block in blocks
            if block.strip()
        ]


def play(seed: int, path: Path, deadline: float, plant: str | None) -> Round:
    """Run a round's sequences in this process."""
    prepare(plant)
    journal, done, told = Journal(path), Round(), set()
    for number in range(SEQUENCES):
        if time.monotonic() > deadline or len(done.found) >= PER_ROUND:
            break
        journal.start()
        program, cpu = generate.write(seed, number, journal.note)
        difference = against(program, cpu)
        done.sequences += 1
        done.steps += len(program)
        done.errors += sum(s.error is not None for s in cpu.seen)
        if difference is None:
            continue
        if why := known.explains(difference):
            done.known[why] += 1
        elif (sign := signature(difference)) not in told:
            told.add(sign)
            done.found.append((done.sequences - 1, difference))
    return done


def signature(difference: Difference | Died) -> tuple[str, ...]:
    """Tell one finding from another: what differs, and which operator did it."""
    if isinstance(difference, Died):
        return ("died",)
    step = re.sub(r"^(in_thread\(\d, .|with on\(.*?\): |\w+ = )+", "", difference.step)
    words = re.findall(r"\.?(\w+)\(", step)
    return difference.kind, words[0] if words else step.split(" ")[1:2].__repr__()


def text(seed: int, programs: Programs, difference: Difference | Died) -> str:
    """Return a finding as a file of the corpus."""
    told = f"Found by seed {seed}. {difference}".splitlines()[:5]
    head = [textwrap.shorten(f"# {line.strip()}", 88) for line in told]
    return "\n".join([*head, corpus.text(programs)])


def keep(
    report: Report, seed: int, programs: Programs | None, difference: Difference | Died
) -> None:
    """Write a finding to a file that is named after what differs."""
    what = " ".join(signature(difference))
    if programs is None:
        once = f"{what} (not again in a process of its own), seed {seed}"
        report.find(once, f"{difference}", again=f"{AGAIN} --seed {seed} --rounds 1")
    else:
        report.find(what, text(seed, programs, difference), again=KEEP, suffix=".py")


@dataclass
class Fuzz:
    """Rounds, until time is up or, unless told to go on, one finds something."""

    report: Report
    seconds: float
    seed: int | None = None
    rounds: int | None = None
    plant: str | None = None
    keep_going: bool = False
    jobs: int = JOBS
    total: Round = field(default_factory=Round)
    seeds: list[int] = field(default_factory=list)
    # The number of the sequence that the first finding took.
    first: int = 0

    def __call__(self) -> Fuzz:
        warm()
        told: set[tuple[str, ...]] = set()
        least: list[Programs] = []
        with tempfile.TemporaryDirectory() as folder:
            for seed, done, programs in self._played(Path(folder)):
                if isinstance(done, Died):
                    done = Round(found=[(len(programs) - 1, done)])
                self._add(seed, done)
                for where, difference in done.found:
                    if self.plant and self.report.findings:
                        break  # A planted bug is found once.
                    if signature(difference) not in told:
                        told.add(signature(difference))
                        took = self.total.sequences - done.sequences + where + 1
                        self._found(seed, programs[: where + 1], difference, least)
                        self.first = self.first or took
                if self.report.findings and not self.keep_going:
                    break
        return self

    def _played(self, folder: Path) -> Iterator[tuple[int, Round | Died, Programs]]:
        """Play rounds, `jobs` at a time: yield their seeds, answers and programs."""
        deadline = time.monotonic() + self.seconds

        def seeds() -> Iterator[int]:
            for number in (
                itertools.count() if self.rounds is None else range(self.rounds)
            ):
                if time.monotonic() > deadline:
                    return
                seed = new_seed() if self.seed is None else self.seed + number
                print(f"--seed {seed} --rounds 1", flush=True)
                yield seed

        def work(seed: int, _: Callable[[str], None]) -> Round:
            path = folder / str(seed)
            return play(seed, path, deadline, self.plant)

        limit = min(self.seconds + 60, PATIENCE)
        for seed, done in work_through(seeds(), work, self.jobs, limit, lifetime=1):
            yield seed, done, Journal.programs(folder / str(seed))

    def _add(self, seed: int, done: Round) -> None:
        self.seeds.append(seed)
        self.total.sequences += done.sequences
        self.total.steps += done.steps
        self.total.errors += done.errors
        self.total.known += done.known

    def _found(
        self,
        seed: int,
        programs: Programs,
        difference: Difference | Died,
        known_least: list[Programs],
    ) -> None:
        """Make what a round found shorter, and keep it if it is new."""
        if self.plant and call(check, programs) is not None:
            return  # Not the planted bug's doing.
        kind = signature(difference)[0]
        least = shorter(programs, kind, self.plant) if programs else None
        if least:
            difference = call(check, least, self.plant)
            is_told = isinstance(difference, Difference)
            if is_told and (why := known.explains(difference)):
                self.total.known[why] += 1
                return
            if least in known_least:
                return
            known_least.append(least)
        keep(self.report, seed, least, difference)


def search_planted(seed: int | None, jobs: int) -> list[dict[str, Any]]:
    """Plant each bug for a minute at most, and tell which ones were found."""
    told = []
    for name in sorted(planted.BUGS):
        with tempfile.TemporaryDirectory() as folder:
            report = Report("fuzz", folder=Path(folder))
            done = Fuzz(report, SECONDS_PLANTED, seed, plant=name, jobs=jobs)()
        found = bool(report.findings)
        took = done.first if found else done.total.sequences
        told.append({"name": name, "found": found, "sequences": took})
        print(told[-1], flush=True)
    return told


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    options.add_argument("--minutes", type=float, help="1, or as --rounds take")
    options.add_argument("--seconds", type=float, help="instead of --minutes")
    options.add_argument("--seed", type=int, help="of the first round; else a new one")
    options.add_argument("--rounds", type=int, help="stop after so many")
    options.add_argument("--jobs", type=int, default=JOBS, help="rounds at a time")
    options.add_argument("--keep-going", action="store_true", help="after a finding")
    options.add_argument("--findings", type=Path, help="a folder")
    options.add_argument("--plant", choices=sorted(planted.BUGS))
    options.add_argument("--planted", action="store_true", help="then plant each bug")
    options.add_argument("--report", type=Path, nargs="?", help="not out/fuzz.json")
    chosen = options.parse_args()
    seconds = 60.0 if chosen.rounds is None else math.inf
    if chosen.minutes is not None:
        seconds = 60 * chosen.minutes
    if chosen.seconds is not None:
        seconds = chosen.seconds
    report = Report("fuzz", path=chosen.report, folder=chosen.findings)
    names = ("seed", "rounds", "plant", "keep_going", "jobs")
    done = Fuzz(report, seconds, **{name: getattr(chosen, name) for name in names})()
    told = search_planted(chosen.seed, chosen.jobs) if chosen.planted else []
    for bug in told:
        if not bug["found"]:
            report.find(f"the planted bug {bug['name']} was not found")
    total = done.total
    report.seed = done.seeds
    report.counts = {
        "sequences": total.sequences,
        "steps": total.steps,
        "steps that raised": total.errors,
    }
    report.counts |= {f"known: {why}": n for why, n in total.known.most_common()}
    if told:
        report.counts["planted bugs found"] = sum(bug["found"] for bug in told)
    report.told = ("sequences", "steps", "steps that raised")
    report.details = {"planted": told}
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
