"""Runs suites that nobody here wrote on npu; what fails is run on cpu, too.

    make judges                                 all of them, in hours
    python -m tests.judges.run --part 2         a third of each suite's tests
    python -m tests.judges.run --only opinfo    shards with such a name
    python -m tests.judges.run --keep           docs/judges.json gets what it finds
    python -m tests.judges.run --again --keep   only what has failed, as it is kept

--resume goes on with the run that was interrupted. out/judges.json has what came of
the tests. Status 1 where one fails that docs/judges.json does not know of.
"""

import argparse
import datetime
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.judges import shards, suites
from tests.judges.shards import Outcome, Shard
from tests.search.report import ROOT, Report, about

KEPT = ROOT / "docs" / "judges.json"
BAD = ("failed", "crashed", "hung")
LOGS = suites.OUT / "logs"
PARTS = 3
GIST = 100  # letters of a message by which two are compared
Outcomes = dict[str, Outcome]


def log_of(shard: Shard, device: str, part: int) -> Path:
    name = shard.name.replace(" ", "-").replace("/", "-")
    return LOGS / str(part) / f"{name}.{device}.jsonl"


@dataclass(frozen=True)
class Work:
    """A part of all tests, and how many processes run it at the same time."""

    part: int
    workers: int


def run(
    chosen: Sequence[Shard], device: str, env: dict[str, str], work: Work
) -> list[Outcomes]:
    """Run a part of the shards; return what came of each one's tests."""

    def one(shard: Shard) -> Outcomes:
        with_part = Shard(
            shard.name, shard.arguments, shard.folder, {**shard.env, **env}
        )
        found = shards.run(suites.PYTHON, with_part, log_of(shard, device, work.part))
        bad = sum(outcome.outcome in BAD for outcome in found.values())
        print(f"{shard.name} on {device}: {len(found)}, bad {bad}", flush=True)
        return found

    with ThreadPoolExecutor(work.workers) as pool:
        return list(pool.map(one, chosen))


def now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(" ", "minutes")[:16]


def gist(message: str) -> str:
    """Return what a message says on any device."""
    message = message.removeprefix("AssertionError: ")
    return re.sub(r"npu(:\d+)?|cpu|0x[0-9a-f]+|\d+", "#", message)[:GIST]


def wrong_on_cpu(
    suite: suites.Suite, failed: dict[str, Outcomes], work: Work
) -> set[str]:
    """Return which of the failed tests are not right on cpu either.

    First as they are, then with cpu under another name, as some ask less of it; in
    disguise a test counts that says what it said on npu. Those that do not fail alone
    on npu have failed because of the tests before them: they are run on cpu with the
    same ones before them.
    """
    messages = {n: o.message for tests in failed.values() for n, o in tests.items()}
    asked = {name: on_cpu for name in messages if (on_cpu := suite.on_cpu(name))}
    excused: set[str] = set()

    def left() -> dict[str, str]:
        return {name: asked[name] for name in asked if name not in excused}

    def again(device: str, label: str, names: Iterable[str], **env: str) -> Outcomes:
        """Run the shards in which those tests have failed."""
        names = set(names)
        of_them = [s for s in suite.shards(device) if names & {*failed.get(s.name, ())}]
        return {k: v for o in run(of_them, label, env, work) for k, v in o.items()}

    wanted = suites.OUT / f"names-{os.getpid()}"
    only = {"JUDGES_ONLY": str(wanted)}
    for label, disguise in (("cpu", ""), ("disguised", "1")):
        wanted.write_text("\n".join(left().values()))
        found = again("cpu", label, left(), JUDGES_DISGUISE=disguise, **only)
        for name, on_cpu in left().items():
            outcome = found.get(on_cpu)
            if outcome and outcome.outcome in BAD:
                same = gist(outcome.message) == gist(messages[name])
                excused |= {name} if same or not disguise else set()
    wanted.write_text("\n".join(left()))
    alone = again("npu", "alone", left(), **only)
    wanted.unlink()
    led = [name for name in left() if name in alone and alone[name].outcome == "passed"]
    company = again("cpu", "company", led, JUDGES_PART=f"{work.part}/{PARTS}")
    for name in led:
        outcome = company.get(asked[name])
        excused |= {name} if outcome and outcome.outcome in BAD else set()
    return excused


def is_chosen(shard: Shard, only: list[str]) -> bool:
    return not only or any(word in shard.name for word in only)


def judged(suite: suites.Suite, only: list[str], work: Work) -> dict[str, Any]:
    """Return what came of a part of a suite: outcomes by number, and each failure."""

    chosen = [shard for shard in suite.shards("npu") if is_chosen(shard, only)]
    found = run(chosen, "npu", {"JUDGES_PART": f"{work.part}/{PARTS}"}, work)
    failed = {
        shard.name: {n: o for n, o in outcomes.items() if o.outcome in BAD}
        for shard, outcomes in zip(chosen, found, strict=True)
    }
    excused = wrong_on_cpu(suite, failed, work)
    counts = dict.fromkeys(("passed", *BAD, "skipped", "not right on cpu either"), 0)
    failures: dict[str, dict[str, str]] = {}
    for name, outcome in sorted({k: v for o in found for k, v in o.items()}.items()):
        kind = outcome.outcome
        if name in excused:
            kind = "not right on cpu either"
        counts[kind] += 1
        if kind in BAD:
            failures.setdefault(kind, {})[name] = outcome.message
    return {"counts": counts, "failures": failures, "ended": now(), **about()}


def judged_again(
    suite: suites.Suite, only: list[str], kept: dict[str, Any], work: Work
) -> None:
    """Run tests of a part again that have failed; note which pass, or fail on cpu."""
    names = [name for tests in kept["failures"].values() for name in tests]
    wanted = suites.OUT / f"names-{os.getpid()}"
    wanted.write_text("\n".join(names))
    files = tuple({name.partition("::")[0] for name in names})
    chosen = [
        shard
        for shard in suite.shards("npu")
        if is_chosen(shard, only) and any(a.endswith(files) for a in shard.arguments)
    ]
    outcomes = run(chosen, "again", {"JUDGES_ONLY": str(wanted)}, work)
    wanted.unlink()
    failed = {
        shard.name: {n: o for n, o in tests.items() if o.outcome in BAD}
        for shard, tests in zip(chosen, outcomes, strict=True)
    }
    right = {n for o in outcomes for n, one in o.items() if one.outcome == "passed"}
    excused = wrong_on_cpu(suite, failed, work)
    for kind, tests in kept["failures"].items():
        for name in right.union(excused).intersection(tests):
            del tests[name]
            kept["counts"][kind] -= 1
            now_it_is = "passed" if name in right else "not right on cpu either"
            kept["counts"][now_it_is] += 1
    kept["again"] = {"ended": now(), **about()}


def read_kept() -> dict[str, Any]:
    """Return each suite's parts, as they were when they were last kept."""
    return json.loads(KEPT.read_text()) if KEPT.exists() else {}


def failures(part: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Return outcome and message of each test of a part that failed."""
    return {
        test: (outcome, message)
        for outcome, tests in part["failures"].items()
        for test, message in tests.items()
    }


def unknown(found: dict[str, Any], kept: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Return the failures of a part that are not known from kept ones."""
    parts = [part for suite in kept.values() for part in suite["parts"].values()]
    known = {test for part in parts for test in failures(part)}
    return {k: v for k, v in failures(found).items() if k not in known}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], metavar="WORD")
    parser.add_argument("--suite", choices=[suite.name for suite in suites.SUITES])
    parser.add_argument("--part", type=int, choices=range(PARTS))
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--no-install", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    if not options.resume:
        shutil.rmtree(LOGS, ignore_errors=True)
    kept, known = read_kept(), read_kept()
    report = Report("judges", details=kept)
    for suite in suites.SUITES:
        if options.suite not in (None, suite.name):
            continue
        if not options.no_install:
            suite.prepare()
        entry = kept.setdefault(suite.name, {"parts": {}})
        entry |= {"version": suite.version, "source": suite.source}
        for part in range(PARTS) if options.part is None else [options.part]:
            work = Work(part, options.workers)
            if options.again:
                found = entry["parts"][str(part)]
                judged_again(suite, options.only, found, work)
            else:
                found = judged(suite, options.only, work)
            entry["parts"][str(part)] = found
            for outcome, number in found["counts"].items():
                report.counts[outcome] = report.counts.get(outcome, 0) + number
            for test, (outcome, message) in unknown(found, known).items():
                what = f"{test}: {outcome}"
                words = f"--no-install --part {part} --suite '{suite.name}'"
                again = f"python -m tests.judges.run {words}"
                report.find(what, message, again=again)
            report.write()
            if options.keep:
                KEPT.write_text(json.dumps(kept, indent=1) + "\n")
    status = report.end()
    return 0 if options.keep else status


if __name__ == "__main__":
    sys.exit(main())
