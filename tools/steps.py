"""Runs make's steps one after the other, and says what came of each.

    python3.11 tools/steps.py            what every change must pass
    python3.11 tools/steps.py --night    everything, in full

For a change the output is shown as it comes, and the first failure ends it. At night
nothing is left out because something before it failed: the output is in
out/nightly/STEP.log, and the end of a failed one is shown. Both end with a table
(step, seconds, result, figure) and with the worst status of all steps. After each
step the table is also in out/check.json or out/nightly.json, so that a run that is cut
off leaves its part, and `--resume` runs the other steps on the same commit. It needs
nothing but Python, as no environment is there yet.

A night has no room for all steps: of those IN_TURN it runs one, the next one the day
after. `--only STEP` runs any.
"""

from __future__ import annotations

import argparse
import calendar
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import figures
import process_group

ROOT = Path(__file__).resolve().parents[1]
# Two targets of one make: installing keeps one core busy, as lint does.
FIRST = ("tools core", "build lint")
# Minutes after which a step hangs. All of a night's steps together have WHOLE.
LIMITS = {
    "test": 40,
    "test-slow-host": 40,
    "mutants": 40,
    "torture": 15,
    "judges": 90,
    "test-undefined": 60,
    "test-address": 60,
    "test-thread": 60,
    "versions": 50,
    "coverage": 60,
}
LIMIT, WHOLE = 30, 330
# Each builds the extension anew, for the sanitizers of the compiler.
IN_TURN = ("test-undefined", "test-address", "test-thread")
DAY_S = 24 * 60 * 60
# As timeout(1) has it.
OUT_OF_TIME = 124
LINES_SHOWN = 60
MOMENT = "%Y-%m-%d %H:%M"
LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class Step:
    """A command, and the seconds that it may take."""

    name: str
    command: tuple[str, ...]
    limit_s: float


@dataclass(frozen=True, slots=True)
class Ended:
    """What came of a step."""

    step: str
    seconds: float
    status: int
    figure: str = ""

    @property
    def result(self) -> str:
        if self.status == OUT_OF_TIME:
            return "out of time"
        return f"failed, exit status {self.status}" if self.status else "passed"


def make_steps(*variables: str) -> list[Step]:
    """Return the steps that the Makefile names, after those that all others need."""
    told = subprocess.run(
        ["make", "-s", "steps", *variables],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [
        Step(
            name,
            ("make", "-k", "-j2", "-Otarget", *name.split(), *variables)
            if " " in name
            else ("make", name, *variables),
            60 * LIMITS.get(name, LIMIT),
        )
        for name in (*FIRST, *told.stdout.split())
    ]


def of_one_night(steps: Sequence[Step], began: float) -> list[Step]:
    """Return the steps without those of other nights, and say whose turn it is."""
    turn = IN_TURN[int(began // DAY_S) % len(IN_TURN)]
    print(f"in turn, of {', '.join(IN_TURN)}: {turn}", flush=True)
    return [step for step in steps if step.name == turn or step.name not in IN_TURN]


def show_new(log: BinaryIO) -> None:
    sys.stdout.write(log.read().decode(errors="replace"))
    sys.stdout.flush()


def run(step: Step, log: Path, limit_s: float, *, live: bool) -> int:
    """Run a step and return its status; whatever it started ends with it."""
    log.parent.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + limit_s
    with log.open("wb") as written, log.open("rb") as shown:
        try:
            with process_group.started(step.command, written, cwd=ROOT) as child:
                while (left := until - time.monotonic()) > 0 and child.poll() is None:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        child.wait(min(left, LOOK_S))
                    if live:
                        show_new(shown)
                in_time = child.poll() is not None
        finally:
            if live:
                show_new(shown)
    if not in_time:
        return OUT_OF_TIME
    # What a shell makes of a signal.
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def show_end(log: Path) -> None:
    lines = log.read_text(errors="replace").splitlines()[-LINES_SHOWN:]
    print(f"the end of {log}:", *lines, sep="\n", flush=True)


@dataclass
class Run:
    """All steps of a change, or of a night."""

    name: str
    steps: Sequence[Step]
    is_night: bool
    out: Path
    whole_s: float = 60 * WHOLE
    find: Callable[[str, str, float], str] = figures.find
    ended: list[Ended] = field(default_factory=list)
    left_out: Sequence[str] = ()
    began: float = field(default_factory=time.time)

    def resume(self, told: dict[str, Any]) -> None:
        """Keep the steps that have passed before, and what they took of the night."""
        self.ended = [
            Ended(**{name: one[name] for name in one.keys() - {"result"}})
            for one in told["steps"]
            if not one["status"]
        ]
        passed = {ended.step for ended in self.ended}
        self.steps = [step for step in self.steps if step.name not in passed]
        self.whole_s -= sum(ended.seconds for ended in self.ended)

    def __call__(self) -> int:
        """Run them, print the table, and return the worst status."""
        until = time.monotonic() + self.whole_s
        try:
            for step in self.steps:
                limit = min(step.limit_s, until - time.monotonic())
                ended = self._one(step, limit if self.is_night else step.limit_s)
                self.ended.append(ended)
                self.write()
                if ended.status and not self.is_night:
                    break
        finally:
            print(f"\n== {self.name}", table(self.ended), sep="\n", flush=True)
        return max(ended.status for ended in self.ended)

    def _one(self, step: Step, limit_s: float) -> Ended:
        print(f"\n== {step.name}", flush=True)
        log = self.out / self.name / f"{step.name.replace(' ', '-')}.log"
        began, ticks = time.time(), time.monotonic()
        if limit_s <= 0:
            return Ended(step.name, 0, OUT_OF_TIME)
        status = run(step, log, limit_s, live=not self.is_night)
        if status and self.is_night:
            show_end(log)
        told = log.read_text(errors="replace")
        figure = self.find(step.name, told, began)
        seconds = round(time.monotonic() - ticks, 1)
        ended = Ended(step.name, seconds, status, figure)
        if self.is_night:
            print(f"{ended.result}, {seconds:.0f} s", figure, flush=True)
        return ended

    def write(self) -> None:
        """Leave what there is so far."""
        there = {ended.step for ended in self.ended}
        names = [*(step.name for step in self.steps), *self.left_out]
        told = {
            "began": time.strftime(MOMENT, time.gmtime(self.began)),
            "commit": commit(),
            "cores": os.cpu_count(),
            "not_run": [name for name in names if name not in there],
            "steps": [asdict(ended) | {"result": ended.result} for ended in self.ended],
        }
        self.out.mkdir(parents=True, exist_ok=True)
        text = json.dumps(told, indent=1) + "\n"
        (self.out / f"{self.name}.json").write_text(text)


def commit() -> str:
    """Return the commit that is checked out, or nothing where git is not used."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    with contextlib.suppress(OSError):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        return done.stdout.strip()
    return ""


def moment(text: str) -> float:
    return float(calendar.timegm(time.strptime(text, MOMENT)))


def cut_off(path: Path) -> dict[str, Any]:
    """Return what a run of this commit has left; raises SystemExit where none has."""
    told: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    if told.get("commit") != commit():
        found = f"it has {told['commit']}" if told else "there is none"
        sys.exit(f"--resume needs a {path} of commit {commit()}; {found}")
    return told


def table(ended: Sequence[Ended]) -> str:
    rows = [(e.step, f"{e.seconds:.0f}", e.result, e.figure) for e in ended]
    rows.append(("all", f"{sum(e.seconds for e in ended):.0f}", "", ""))
    rows.insert(0, ("step", "seconds", "result", "figure"))
    wide = [max(len(row[i]) for row in rows) for i in range(3)]
    return "\n".join(
        f"{step:{wide[0]}}  {seconds:>{wide[1]}}  {result:{wide[2]}}  {figure}".rstrip()
        for step, seconds, result, figure in rows
    )


def stop(*_: object) -> NoReturn:
    sys.exit(128 + signal.SIGTERM)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--night", action="store_true", help="everything, in full")
    parser.add_argument("--only", nargs="+", default=[], metavar="STEP")
    parser.add_argument("--resume", action="store_true", help="a run that was cut off")
    parser.add_argument("--packages-s", type=int, help="seconds that they took")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, stop)
    steps = make_steps(*["NIGHTLY=1"] * options.night)
    if unknown := {*options.only} - {step.name for step in steps}:
        parser.error(f"no such steps: {', '.join(sorted(unknown))}")
    name = "nightly" if options.night else "check"
    told = cut_off(ROOT / f"out/{name}.json") if options.resume else {}
    began = moment(told["began"]) if told else time.time()
    if options.night and not options.only:
        steps = of_one_night(steps, began)
    chosen = [s for s in steps if not options.only or s.name in options.only]
    run_all = Run(name, chosen, options.night, ROOT / "out", began=began)
    run_all.left_out = [step.name for step in steps if step not in chosen]
    if options.packages_s is not None:
        run_all.ended.append(Ended("packages", options.packages_s, 0))
    if told:
        run_all.resume(told)
    return run_all()


if __name__ == "__main__":
    sys.exit(main())
