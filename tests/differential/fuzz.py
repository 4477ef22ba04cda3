"""Random programs on cpu and npu, until the time is up or something differs.

    python -m tests.differential.fuzz --minutes 60
    python -m tests.differential.fuzz --seed 7 --rounds 1     # one of them again

A round is a process of its own with a seed of its own. What it finds is made
shorter and written to out/findings/, as a program that one command, which is
printed, keeps in the corpus. Exit status 1: something new was found.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import json
import math
import os
import random
import re
import select
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.differential import child, corpus, generate, known, planted_more, report
from tests.differential.check import against, check, prepare
from tests.differential.compare import Difference
from tests.differential.reduce import Programs, shorter
from tests.differential.warm import warm

SEQUENCES = 400  # of a round
PER_ROUND = 12  # findings
SECONDS_PLANTED = 60
PATIENCE = 600  # seconds in which some round ends, on however slow a machine
FINDINGS = Path(__file__).resolve().parents[2] / "out" / "findings"
JOBS = os.cpu_count() or 1


@dataclass
class Round:
    """What one process did."""

    sequences: int = 0
    steps: int = 0
    errors: int = 0
    seconds: float = 0.0
    seeds: list[int] = field(default_factory=list)
    known: collections.Counter = field(default_factory=collections.Counter)
    # Of each finding: its number among the sequences.
    found: list[tuple[int, Difference]] = field(default_factory=list)


class Journal:
    """The programs of a round, in a file: they outlive its process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("a")

    def start(self) -> None:
        self._file.write("\n")

    def note(self, step: str) -> None:
        """Write a step before it runs, so that one that kills is the last one."""
        self._file.write(json.dumps(step) + "\n")
        self._file.flush()

    @staticmethod
    def programs(path: Path) -> Programs:
        blocks = path.read_text().split("\n\n")
        return [
            [json.loads(line) for line in block.splitlines() if line]
            for block in blocks
            if block.strip()
        ]


def play(
    seed: int, path: Path, seconds: float, plant: str | None, sequences: int
) -> Round:
    """Run a round's sequences in this process."""
    prepare(plant)
    journal, done, told = Journal(path), Round(), set()
    started = time.monotonic()

    for number in range(sequences):
        if time.monotonic() - started > seconds or len(done.found) >= PER_ROUND:
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
    done.seconds = time.monotonic() - started
    return done


def signature(difference: Difference) -> tuple[str, str]:
    """Tell one finding from another: what differs, and which operator did it."""
    step = re.sub(r"^(in_thread\(\d, .|with on\(.*?\): |\w+ = )+", "", difference.step)
    words = re.findall(r"\.?(\w+)\(", step)
    return difference.kind, words[0] if words else step.split(" ")[1:2].__repr__()


@dataclass
class Finding:
    """A difference and the shortest programs that show it."""

    seed: int
    programs: Programs | None
    difference: Difference | child.Died
    sequences: int = 0  # that it took

    def text(self) -> str:
        """Return the programs as a file of the corpus."""
        told = f"Found by seed {self.seed}. {self.difference}".splitlines()
        head = [textwrap.shorten(f"# {line.strip()}", 88) for line in told]
        return "\n".join([*head, corpus.text(self.programs or [])])

    def write(self, folder: Path) -> Path:
        """Write the programs to a file that is named after what differs."""
        text = self.text()
        what = ["died"]
        if isinstance(self.difference, Difference):
            what = [*signature(self.difference)]
        words = re.findall(r"[a-z0-9]+", " ".join(what).lower())
        name = "_".join([*words, hashlib.sha256(text.encode()).hexdigest()[:6]])
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.py"
        path.write_text(text)
        return path

    def tell(self, folder: Path) -> str:
        """Write the finding; return it in words, with the command that keeps it."""
        if self.programs is None:
            again = "    (not again in a process of its own)"
            return f"found by seed {self.seed}:\n{again}\n{self.difference}\n"
        path = self.write(folder)
        path = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        program = textwrap.indent(self.text(), "    ")
        keep = f"python -m tests.differential.corpus keep {path}"
        return f"found by seed {self.seed}:\n{program}\nkeep it: {keep}\n"


def played(
    seed: int | None,
    seconds: float,
    rounds: int | None,
    sequences: int,
    plant: str | None,
    jobs: int,
) -> Iterator[tuple[int, Round | child.Died, Programs]]:
    """Play rounds, `jobs` at a time: yield their seeds, answers and programs."""
    deadline = time.monotonic() + seconds
    number = 0
    under_way: dict[child.Child, tuple[int, Path]] = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            while True:
                left = deadline - time.monotonic()
                go_on = left > 0 and (rounds is None or number < rounds)
                if go_on and len(under_way) < jobs:
                    this = random.SystemRandom().getrandbits(32)
                    this = this if seed is None else seed + number
                    print(f"--seed {this} --rounds 1", flush=True)
                    path = Path(folder) / f"journal{number}"
                    path.touch()
                    number += 1
                    one = child.Child(play, this, path, left, plant, sequences)
                    under_way[one] = this, path
                    continue
                if not under_way:
                    return
                wait = min(max(left, 0) + 60, PATIENCE)
                ready = select.select(list(under_way), [], [], wait)[0]
                one = ready[0] if ready else next(iter(under_way))
                this, path = under_way.pop(one)
                answer = one.answer(60 if ready else 0)
                yield this, answer, Journal.programs(path)
        finally:
            for one in under_way:
                one.answer(0)


def fuzz(
    seed: int | None,
    *,
    seconds: float,
    rounds: int | None = None,
    sequences: int = SEQUENCES,
    plant: str | None = None,
    keep_going: bool = False,
    jobs: int = JOBS,
    folder: Path = FINDINGS,
) -> tuple[Round, list[Finding]]:
    """Play rounds until time is up or, unless told to go on, one finds something."""
    warm()
    started = time.monotonic()
    total, findings, told = Round(), [], set()
    for this, done, programs in played(seed, seconds, rounds, sequences, plant, jobs):
        if isinstance(done, child.Died):
            done = Round(found=[(len(programs) - 1, done)])
        total.seeds.append(this)
        total.sequences += done.sequences
        total.steps += done.steps
        total.errors += done.errors
        total.seconds = time.monotonic() - started
        total.known += done.known
        for where, difference in done.found:
            if plant and findings:
                break  # A planted bug is found once.
            died = isinstance(difference, child.Died)
            kind = "died" if died else difference.kind
            sign = kind if died else signature(difference)
            if sign in told:
                continue
            told.add(sign)
            if plant and child.call(check, programs[: where + 1]) is not None:
                continue  # Not the planted bug's doing.
            least = None
            if programs:
                least = shorter(programs[: where + 1], kind, plant)
            if least:
                difference = child.call(check, least, plant)
                if isinstance(difference, Difference) and (
                    why := known.explains(difference)
                ):
                    total.known[why] += 1
                    continue
            if least in [f.programs for f in findings if least]:
                continue
            took = total.sequences - done.sequences + where + 1
            findings.append(Finding(this, least, difference, took))
            print(findings[-1].tell(folder), flush=True)
        if findings and not keep_going:
            break
    return total, findings


def search_planted(seed: int | None, jobs: int) -> list[report.Planted]:
    """Plant each bug for a minute at most, and tell which ones were found."""
    told = []
    for name in sorted(planted_more.BUGS):
        with tempfile.TemporaryDirectory() as folder:
            done, findings = fuzz(
                seed,
                seconds=SECONDS_PLANTED,
                plant=name,
                jobs=jobs,
                folder=Path(folder),
            )
        count = findings[0].sequences if findings else done.sequences
        told.append(report.Planted(name, bool(findings), count, round(done.seconds, 1)))
        print(told[-1], flush=True)
    return told


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    options.add_argument("--minutes", type=float, help="1, or as --rounds take")
    options.add_argument("--seconds", type=float, help="instead of --minutes")
    options.add_argument("--seed", type=int, help="of the first round; else a new one")
    options.add_argument("--rounds", type=int, help="stop after so many")
    options.add_argument("--sequences", type=int, default=SEQUENCES)
    options.add_argument("--jobs", type=int, default=JOBS, help="rounds at a time")
    options.add_argument("--keep-going", action="store_true", help="after a finding")
    options.add_argument("--findings", type=Path, default=FINDINGS, help="a folder")
    options.add_argument("--plant", choices=sorted(planted_more.BUGS))
    options.add_argument("--planted", action="store_true", help="then plant each bug")
    options.add_argument("--report", type=Path, nargs="?", const=report.PATH)
    chosen = options.parse_args()
    seconds = 60.0 if chosen.rounds is None else math.inf
    if chosen.minutes is not None:
        seconds = 60 * chosen.minutes
    if chosen.seconds is not None:
        seconds = chosen.seconds
    total, findings = fuzz(
        chosen.seed,
        seconds=seconds,
        rounds=chosen.rounds,
        sequences=chosen.sequences,
        plant=chosen.plant,
        keep_going=chosen.keep_going,
        jobs=chosen.jobs,
        folder=chosen.findings,
    )
    rate = total.sequences / max(total.seconds, 1e-9)
    print(
        f"{total.sequences} sequences, {total.steps} steps, of which {total.errors} "
        f"raised; {rate:.0f} sequences per second; {len(findings)} findings"
    )
    for why, times in total.known.most_common():
        print(f"known, {times} times: {why}")
    told = search_planted(chosen.seed, chosen.jobs) if chosen.planted else []
    if chosen.report:
        figures = {
            "sequences": total.sequences,
            "steps": total.steps,
            "steps that raised": total.errors,
            "seconds": round(total.seconds),
            "findings": len(findings),
        }
        report.write(figures, total.known, told, total.seeds, chosen.report)
    return 1 if findings or not all(bug.found for bug in told) else 0


if __name__ == "__main__":
    sys.exit(main())
